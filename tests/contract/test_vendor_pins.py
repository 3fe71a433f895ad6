"""`rwkv-operator[server]` on the vendor's Ascend image: nothing there moves, by recorded pins."""

from __future__ import annotations

import vendor_pins
import yaml
from packaging.version import Version

PINS = vendor_pins.parse_pins(vendor_pins.PINS.read_text())
STACK = vendor_pins.ROOT / "crds" / "stacks" / "ascend-910b3.yaml"


def test_what_the_image_has_is_good_enough_for_the_server() -> None:
    wanted = vendor_pins.extra("server")
    known = {name: requirement for name, requirement in wanted.items() if name in PINS}
    assert len(known) >= 9
    moved = {
        name: f"{PINS[name]} isn't {requirement.specifier}"
        for name, requirement in known.items()
        if not requirement.specifier.contains(PINS[name])
    }
    assert moved == {}


def test_little_is_added_and_nothing_of_the_operator_or_of_the_framework() -> None:
    wanted = set(vendor_pins.extra("server"))
    assert wanted - set(PINS) == vendor_pins.ADDED
    assert {"kopf", "kubernetes"} <= vendor_pins.operators_own()
    assert not wanted & (
        vendor_pins.operators_own() | {"torch", "torch-npu", "vllm", "vllm-ascend"}
    )


def test_the_list_is_of_the_versions_that_the_stack_wants() -> None:
    packages = yaml.safe_load(STACK.read_text())["spec"]["runtimeRequirements"]["packages"]
    assert {name: PINS[name] for name in packages} == {
        name: Version(version) for name, version in packages.items()
    }


def test_the_hubs_client_is_too_old_there_for_downloads() -> None:
    # transformers keeps it below 1.0, hence a folder of their own for the clients in the image.
    wanted = vendor_pins.extra("hub")["huggingface-hub"]
    assert not wanted.specifier.contains(PINS["huggingface-hub"])

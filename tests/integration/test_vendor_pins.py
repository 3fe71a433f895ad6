"""`rwkv-operator[server]` beside the vendor's packages, by real resolvers and the package index.

Slow and dependent on the index, hence only in `make test-long`; tests/contract has the recorded
pins. `make engine-env STACK=ascend` first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import vendor_pins
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.long

VENDOR = "vllm==0.18.0\nvllm-ascend==0.18.0\n"
OURS = f"rwkv-operator[server] @ file://{vendor_pins.ROOT}\n"
# As in the vendor's image, where vllm-ascend's wishes win.
WINS = "torch==2.9.0\ntorchvision==0.24.0\ntorchaudio==2.9.0\nopencv-python-headless==4.11.0.86\n"
ASCEND = vendor_pins.ROOT / "build" / "engine-env" / "ascend" / "bin" / "python"


def compile_pins(
    folder: Path, requirements: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """Resolve for CPython 3.11; the pins are on standard output."""
    source = folder / "wanted.in"
    source.write_text(requirements)
    uv = str(Path(sys.executable).parent / "uv")
    command = [uv, "pip", "compile", "--python-version", "3.11", "--no-header", "--no-annotate"]
    return subprocess.run(
        [*command, *options, "--quiet", str(source)], capture_output=True, text=True, check=False
    )


def test_the_vendors_two_packages_contradict_each_other_as_published(tmp_path: Path) -> None:
    done = compile_pins(tmp_path, VENDOR, "--python-platform", "aarch64-manylinux_2_35")
    assert done.returncode != 0
    assert "incompatible" in done.stderr


@pytest.mark.parametrize("platform", ["aarch64-manylinux_2_35", "x86_64-manylinux_2_35"])
def test_with_the_vendors_pins_held_the_server_is_found_and_adds_little(
    tmp_path: Path, platform: str
) -> None:
    override = tmp_path / "override.txt"
    override.write_text(WINS)
    options = ["--python-platform", platform, "--override", str(override)]
    before = compile_pins(tmp_path, VENDOR, *options)
    assert before.returncode == 0, before.stderr
    held = tmp_path / "held.txt"
    held.write_text(before.stdout)
    after = compile_pins(tmp_path, VENDOR + OURS, *options, "--constraint", str(held))
    assert after.returncode == 0, after.stderr
    old, new = (vendor_pins.parse_pins(done.stdout) for done in (before, after))
    assert {name: version for name, version in new.items() if name in old} == old
    assert set(new) - set(old) == vendor_pins.ADDED


def test_pip_itself_would_change_nothing_that_is_installed() -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(ASCEND)]
    listed = subprocess.run([*pip, "list", "--format=json"], capture_output=True, check=True)
    installed = {canonicalize_name(entry["name"]) for entry in json.loads(listed.stdout)}
    assert {"torch", "torch-npu", "vllm-ascend", "numpy"} <= installed
    wanted = f"{vendor_pins.ROOT}[server]"
    flags = ["--dry-run", "--quiet", "--ignore-requires-python", "--report", "-"]
    done = subprocess.run([*pip, "install", *flags, wanted], capture_output=True, check=True)
    report = json.loads(done.stdout)["install"]
    would = {canonicalize_name(entry["metadata"]["name"]) for entry in report} - {"rwkv-operator"}
    assert "starlette" in would and "pyrwkv-tokenizer" in would
    assert not would & installed
    assert not would & vendor_pins.operators_own()

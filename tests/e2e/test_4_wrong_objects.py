"""What is wrong is said exactly: by the API server, by conditions, by the pods' own reasons."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import claims
import installation
import pytest
from kube import KubeError, wait_for
from world import World, deployment

pytestmark = pytest.mark.cluster

INVALID = sorted((installation.ROOT / "crds" / "samples" / "invalid").glob("*.yaml"))
MODEL = "/opt/rwkv/models/tiny-recall"
COPY = f"""
import json, pathlib, shutil
shutil.copytree('{MODEL}', '/models/narrow', dirs_exist_ok=True)
path = pathlib.Path('/models/narrow/config.json')
config = json.loads(path.read_text())
config['intermediate_size'] = 384
path.write_text(json.dumps(config))
"""


def from_volume(name: str, path: str) -> dict[str, Any]:
    return deployment(name, persistentVolumeClaim={"claimName": "models", "path": path})


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_the_api_server_refuses_with_the_expected_message(world: World, path: Path) -> None:
    match = re.search(r"^# expect: (.+)$", path.read_text(), re.MULTILINE)
    assert match, f"{path.name} lacks its '# expect:' line"
    with pytest.raises(KubeError) as refused:
        world.kube.apply(path)
    assert match.group(1) in str(refused.value)


def test_an_unknown_stack_is_named_and_makes_no_pod(world: World) -> None:
    obj = deployment("nostack")
    obj["spec"]["hardware"]["stack"] = "tpu-v9"
    world.kube.apply(obj)
    message = world.wait_condition("nostack", "Admitted", "False", "UnknownStack")
    assert "tpu-v9" in message and "cpu" in message
    assert not world.engine_pods("nostack")
    world.kube.run("delete", "rwkv", "nostack")


def test_a_volume_that_is_missing_empty_or_holds_a_misshapen_model_is_named(world: World) -> None:
    world.kube.apply(from_volume("narrow", "narrow"))
    message = wait_for_degraded(world, "narrow")
    assert "models" in message, message
    claims.make_claim(world, "models")
    claims.fill_claim(world, "models", COPY)
    text = world.wait_condition("narrow", "ModelLoaded", "False", "ModelInvalid", timeout=240)
    assert "ffn.key.weight" in text and "model.safetensors" in text, text
    assert "384" in text and "512" in text, text
    world.kube.run("delete", "rwkv", "narrow")
    world.kube.apply(from_volume("absent", "absent"))
    text = world.wait_condition("absent", "ModelLoaded", "False", "ModelNotFound", timeout=240)
    assert "/models/absent" in text, text
    world.kube.run("delete", "rwkv", "absent")


def wait_for_degraded(world: World, name: str) -> str:
    """The message that a pod without its volume leads to."""

    def message() -> str:
        obj = world.kube.get("rwkv", name)
        found = {item["type"]: item for item in obj.get("status", {}).get("conditions", [])}
        degraded = found.get("Degraded", {})
        return degraded["message"] if degraded.get("status") == "True" else ""

    return wait_for(message, f"rwkv/{name} to be Degraded")

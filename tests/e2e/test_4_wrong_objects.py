"""What is wrong is said exactly: by the API server, by conditions, by the pods' own reasons."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import claims
import installation
import pytest
from kube import KubeError, Wanted
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
    world.wait_condition("nostack", Wanted("Admitted", "False", "UnknownStack", ("tpu-v9", "cpu")))
    assert not world.engine_pods("nostack")
    world.kube.run("delete", "rwkv", "nostack")


def test_a_volume_that_is_missing_empty_or_holds_a_misshapen_model_is_named(world: World) -> None:
    world.kube.apply(from_volume("narrow", "narrow"))
    world.wait_condition("narrow", Wanted("Degraded", "True", "FailedScheduling", ("models",)))
    claims.make_claim(world, "models")
    claims.fill_claim(world, "models", COPY)
    words = ("ffn.key.weight", "model.safetensors", "384", "512")
    invalid = Wanted("ModelLoaded", "False", "ModelInvalid", words)
    world.wait_condition("narrow", invalid, timeout=240)
    world.kube.run("delete", "rwkv", "narrow")
    world.kube.apply(from_volume("absent", "absent"))
    absent = Wanted("ModelLoaded", "False", "ModelNotFound", ("/models/absent",))
    world.wait_condition("absent", absent, timeout=240)
    world.kube.run("delete", "rwkv", "absent")

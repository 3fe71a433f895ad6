"""What is wrong is said exactly: by the API server, by conditions, by the pods' own reasons."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import installation
import pytest
from kube import KubeError, wait_for
from world import World, deployment

pytestmark = pytest.mark.cluster

INVALID = sorted((installation.ROOT / "crds" / "samples" / "invalid").glob("*.yaml"))
MODEL = "/opt/rwkv/models/tiny-recall"
COPY = f"""
import json, pathlib, shutil
shutil.copytree('{MODEL}', '/models/good', dirs_exist_ok=True)
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


def test_a_model_from_a_volume_is_served_and_a_misshapen_one_is_named(chat: World) -> None:
    chat.kube.apply(from_volume("narrow", "narrow"))
    message = wait_for_degraded(chat, "narrow")
    assert "models" in message, message
    fill_volume(chat)
    chat.kube.apply(from_volume("good", "good"))
    text = chat.wait_condition("narrow", "ModelLoaded", "False", "ModelInvalid", timeout=240)
    assert "ffn.key.weight" in text and "model.safetensors" in text, text
    assert "384" in text and "512" in text, text
    chat.kube.run("delete", "rwkv", "narrow")
    chat.kube.apply(from_volume("absent", "absent"))
    text = chat.wait_condition("absent", "ModelLoaded", "False", "ModelNotFound", timeout=240)
    assert "/models/absent" in text, text
    chat.kube.run("delete", "rwkv", "absent")
    chat.wait_ready("good")
    body = {"messages": [{"role": "user", "content": "Hello, my name is Nora."}]}
    (bundled,) = chat.call({"body": body})
    body["model"] = "good"
    (volume,) = chat.call({"body": body}, url="http://good", key=chat.api_key("good"))
    assert volume["text"] == bundled["text"]
    chat.kube.run("delete", "rwkv", "good")


def wait_for_degraded(world: World, name: str) -> str:
    """The message that a pod without its volume leads to."""

    def message() -> str:
        obj = world.kube.get("rwkv", name)
        found = {item["type"]: item for item in obj.get("status", {}).get("conditions", [])}
        degraded = found.get("Degraded", {})
        return degraded["message"] if degraded.get("status") == "True" else ""

    return wait_for(message, f"rwkv/{name} to be Degraded")


def fill_volume(world: World) -> None:
    """A claim `models` with a good and a misshapen copy of the bundled model."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    world.kube.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models"},
            "spec": claim,
        }
    )
    container = {
        "name": "fill",
        "image": world.images["server"],
        "command": ["python3", "-c", COPY],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
    volume = {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [volume],
        "securityContext": {"runAsUser": 65532, "fsGroup": 65532},
    }
    world.kube.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fill"}, "spec": spec}
    )
    world.kube.run("wait", "pod/fill", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s")
    world.kube.run("delete", "pod", "fill")

"""Each source gives the same answer; a download survives a kill, a token stays secret.

Their engines keep states in themselves: here is also what becomes of such a state.
"""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import claims
import hub_pod
import installation
import pytest
import state_talk
from kube import Wanted, condition, wait_for
from world import World, deployment

from build import docker_answers

pytestmark = pytest.mark.cluster

MODEL = installation.ROOT / "image" / "models" / "tiny-recall"
ENV = ("HF_ENDPOINT", "MODELSCOPE_ENDPOINT")
HELLO = {"messages": [{"role": "user", "content": "Hello, my name is Nora."}]}
COPY = "import shutil; shutil.copytree('/opt/rwkv/models/tiny-recall', '/models/a/tiny')"
SERVED = ("from-hub", "from-scope", "from-image", "from-volume")
WRONG: dict[str, tuple[str, str, dict[str, Any]]] = {
    "no-repo": ("ModelNotFound", "org/absent", {"huggingFace": {"repo": "org/absent"}}),
    "no-revision": ("ModelNotFound", "v9", {"modelScope": {"repo": "org/pth", "revision": "v9"}}),
    "no-token": ("CredentialsMissing", "401", {"huggingFace": {"repo": "org/model"}}),
    "no-secret": (
        "CredentialsMissing",
        "key token of Secret absent",
        {
            "huggingFace": {
                "repo": "org/model",
                "tokenSecretRef": {"name": "absent", "key": "token"},
            }
        },
    ),
    "no-image": (
        "DownloadFailed",
        "registry.invalid/none:1 can't be pulled",
        {"image": {"reference": "registry.invalid/none:1"}},
    ),
}


def from_hub(name: str, source: dict[str, Any], **model: Any) -> dict[str, Any]:
    """A deployment whose download asks the hub in the cluster."""
    obj = small(name, **source)
    obj["spec"]["model"].update(model)
    env = [{"name": key, "value": hub_pod.URL} for key in ENV]
    obj["spec"]["engine"] = {"podTemplate": {"env": env}}
    return obj


def small(name: str, **source: Any) -> dict[str, Any]:
    """A deployment that reserves little, so that one node of two cores takes all of them."""
    obj = deployment(name, **source)
    obj["spec"]["hardware"]["resources"] = {"requests": {"cpu": "50m"}}
    return obj


@pytest.fixture(scope="module")
def models(world: World) -> Iterator[World]:
    """The hub, an image and a claim with the bundled model, and a claim for downloads."""
    machine = installation.end_to_end_machine()
    machine.load_images({"model": build_model_image()})
    hub_pod.start(world)
    for claim in ("shelf", "cache"):
        claims.make_claim(world, claim)
    claims.fill_claim(world, "shelf", COPY)
    yield world
    world.kube.run("delete", "rwkv", *SERVED, *WRONG, "--ignore-not-found", "--wait=true")
    hub_pod.stop(world)
    world.kube.run("delete", "pvc", "shelf", "cache", "--wait=false")


@pytest.fixture(scope="module")
def engines(models: World) -> World:
    """An engine of each source, on its way; the download of one was killed half way."""
    kill_halfway(models)
    for other in others().values():
        models.kube.apply(other)
    return models


def others() -> dict[str, dict[str, Any]]:
    """The deployments of the other sources."""
    pth = {"modelScope": {"repo": "org/pth", "tokenSecretRef": hub_pod.SECRET}}
    image = {"image": {"reference": MODEL_IMAGE, "path": "model"}}
    claim = {"persistentVolumeClaim": {"claimName": "shelf", "path": "a/tiny"}}
    return {
        "from-scope": from_hub("from-scope", pth, cache={"sizeLimit": "1Gi"}),
        "from-image": small("from-image", **image),
        "from-volume": small("from-volume", **claim),
    }


def kill_halfway(world: World) -> None:
    """Have two pods ask for the same download, and kill the one that has begun it."""
    source = {"huggingFace": {"repo": "org/model", "tokenSecretRef": hub_pod.SECRET}}
    obj = from_hub("from-hub", source, cache={"claimName": "cache"})
    obj["spec"]["replicas"] = 2
    world.kube.apply(obj)
    message = wait_for(lambda: halfway(world), "a download that tells its percents", timeout=180)
    (pod,) = re.findall(
        r"(from-hub-engine-\d): Downloading \d+%, [\d.]+ [KM]iB of [\d.]+ MiB", message
    )
    world.kube.run("delete", "pod", pod, "--grace-period=0", "--force")
    before = hub_pod.told(world)
    assert before["sent"] < before["size"], "the download was over before it was killed"
    hub_pod.hurry(world)


def halfway(world: World) -> str:
    """The message of a download that is between a tenth and its end."""
    obj = world.kube.get("rwkv", "from-hub")
    found = condition(obj, "ModelLoaded")
    percent = obj.get("status", {}).get("model", {}).get("downloadPercent", 0)
    if found.get("reason") == "Downloading" and percent >= 10:
        message: str = found["message"]
        return message
    return ""


MODEL_IMAGE = "localhost/rwkv-operator/e2e-model:1"


def build_model_image() -> str:
    """An image that holds the bundled model's files and nothing else."""
    builder = ["docker", "build"] if docker_answers() else ["buildah", "bud", "--isolation=chroot"]
    file = installation.ROOT / "tests" / "e2e" / "model.Dockerfile"
    subprocess.run([*builder, "-f", str(file), "-t", MODEL_IMAGE, str(MODEL)], check=True)
    return MODEL_IMAGE


def test_what_keeps_a_model_from_arriving_is_told(models: World) -> None:
    for name, (_, _, source) in WRONG.items():
        hub = next(iter(source.values()))
        if name.startswith("no-re"):
            hub = {**hub, "tokenSecretRef": hub_pod.SECRET}
        models.kube.apply(from_hub(name, {next(iter(source)): hub}))
    for name, (reason, text, _) in WRONG.items():
        models.wait_condition(name, Wanted("ModelLoaded", "False", reason, (text,)))
    models.kube.run("delete", "rwkv", *WRONG)


def test_a_killed_download_goes_on_and_two_pods_download_once(engines: World) -> None:
    wait_for(lambda: have_fetched(engines, 2), "both pods to have the model", timeout=240)
    after = hub_pod.told(engines)
    assert after["sent"] < 1.2 * after["size"], after
    assert [asked for asked in after["ranges"] if asked], "nothing went on where it had stopped"
    assert after["secrets"] == [], "the token was sent to where the hub redirects"
    told = [event["message"] for event in events(engines, "from-hub", "Downloading")]
    assert 1 <= len(told) <= 12, told
    wait_for(lambda: events(engines, "from-hub", "Downloaded"), "an event that tells of its end")
    # One engine is enough for its answer.
    engines.kube.run("scale", "rwkv", "from-hub", "--replicas=1")


def have_fetched(world: World, count: int) -> bool:
    """Whether the init containers of so many pods have ended well."""
    states = [
        status.get("state", {}).get("terminated", {}).get("exitCode")
        for pod in world.engine_pods("from-hub").values()
        for status in pod["status"].get("initContainerStatuses", [])
    ]
    return states == [0] * count


def events(world: World, name: str, reason: str) -> list[dict[str, Any]]:
    """Events about a deployment."""
    fields = f"involvedObject.kind=RWKVDeployment,involvedObject.name={name},reason={reason}"
    return world.kube.items("events", "--field-selector", fields)


def test_a_state_that_has_gone_with_its_pod_is_lost_and_said_so(engines: World) -> None:
    name = "from-image"
    assert engines.wait_ready(name)["status"]["state"]["store"] == "ephemeral"
    (told,) = state_talk.hold(engines, name, "passing", state_talk.TEXTS[:1])
    engines.kube.run("delete", "pod", f"{name}-engine-0", "--wait=true")
    engines.wait_ready(name)
    ref = {"ref": told["state"]["ref"]}
    (answer,) = state_talk.ask(
        engines, name, state_talk.call(name, "later", state_talk.TEXTS[1], ref)
    )
    assert (answer.get("status"), answer.get("code")) == (410, "state_lost"), answer


def test_every_source_gives_the_same_answer(engines: World, chat: World) -> None:
    (bundled,) = chat.call({"body": HELLO})
    assert bundled["text"]
    sizes = {chat.kube.get("rwkv", "chat")["status"]["model"]["stateBytes"]}
    for name in SERVED:
        obj = engines.wait_ready(name)
        sizes.add(obj["status"]["model"]["stateBytes"])
        call = {"body": {**HELLO, "model": name}}
        (answer,) = engines.call(call, url=f"http://{name}", key=engines.api_key(name))
        assert answer.get("text") == bundled["text"], (name, answer)
    assert len(sizes) == 1


def test_the_token_is_in_no_object_event_or_log(models: World) -> None:
    kinds = (
        "rwkv,statefulsets,deployments,replicasets,services,configmaps,serviceaccounts,"
        "networkpolicies,endpointslices,events"
    )
    texts = {"objects": models.kube.run("get", kinds, "-A", "-o", "yaml")}
    for pod in models.kube.items("pods", "-A"):
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        if name != "hub":
            texts[f"pod {name}"] = str(pod)
            texts[f"logs of {name}"] = models.kube.logs(name, "-n", namespace, "--all-containers")
    assert any("fetch" in text or "huggingFace" in text for text in texts.values())
    hidden = (hub_pod.TOKEN, base64.b64encode(hub_pod.TOKEN.encode()).decode())
    leaks = [where for where, text in texts.items() for token in hidden if token in text]
    assert not leaks

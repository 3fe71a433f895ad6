"""Replay 6: what pods go through is told by the conditions, with the pods' own reasons.

KServe #1859, #2037, #2260, Dynamo #3567 and airunway #422 told of success while pods crashed, were
killed, couldn't be scheduled, or while only the pods of the former generation were ready. There is
no kubelet here: the tests write the status that it would write onto the real pods.
"""

import datetime
import json
from collections.abc import Iterator
from typing import Any

import deployments
import pod_objects
import pytest
import stub_ops
from kube import Kube, Wanted, condition, wait_condition, wait_for
from operator_process import OperatorProcess
from stub_ops import Answers

from rwkv_operator import names
from rwkv_operator.api import conditions
from rwkv_operator.manifests import haproxy

pytestmark = pytest.mark.apiserver

SAID = {
    "reason": "ModelInvalid",
    "message": "model.safetensors: model.layers.0.ffn.key.weight has the wrong shape",
    "found": "[384, 96]",
    "wanted": "[512, 96]",
}


class Chat:
    """A deployment `chat` in a namespace of its own, and the kubelet of its pods."""

    def __init__(self, kube: Kube, namespace: str, answers: Answers) -> None:
        self.kube = kube
        self.namespace = namespace
        self.answers = answers

    def apply(self) -> None:
        obj = deployments.load(deployments.CRDS / "samples" / "tiny-recall.yaml")
        obj["metadata"]["namespace"] = self.namespace
        self.kube.apply(obj)
        for component in ("engine", "router"):
            wait_for(
                lambda component=component: len(self.pods(component)) == 2,
                f"two {component} pods",
                every=0.1,
            )

    def patch(self, spec: dict[str, Any]) -> None:
        text = json.dumps({"spec": spec})
        self.kube.run("patch", "rwkv/chat", "-n", self.namespace, "--type=merge", "-p", text)

    def get(self) -> dict[str, Any]:
        return self.kube.get("rwkv", "chat", "-n", self.namespace)

    def pods(self, component: str) -> list[dict[str, Any]]:
        selector = f"{names.LABEL_COMPONENT}={component}"
        found = self.kube.items("pods", "-n", self.namespace, "-l", selector)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def set(self, pod: str, status: dict[str, Any]) -> None:
        """Write a pod's status as its kubelet would."""
        command = ("patch", "pod", pod, "-n", self.namespace, "--subresource=status")
        self.kube.run(*command, "--type=merge", "-p", json.dumps({"status": status}))

    def set_ready(self, component: str) -> None:
        hosts = stub_ops.ENGINES if component == "engine" else stub_ops.ROUTERS
        for pod, host in zip(self.pods(component), hosts, strict=True):
            self.set(pod["metadata"]["name"], ready(host))

    def run(self) -> None:
        """Bring everything up to Ready."""
        self.apply()
        config = self.kube.get("configmap", "chat-router", "-n", self.namespace)
        digest = haproxy.config_hash(config["data"]["haproxy.cfg"])
        self.answers.common.update(stub_ops.serving(str(digest)).common)
        self.set_ready("engine")
        self.set_ready("router")
        self.wait(Wanted("Ready", "True", "Ready"))

    def wait(self, wanted: Wanted) -> dict[str, Any]:
        return wait_condition(self.get, wanted)

    def wait_cause(self, reason: str, *words: str, generation: int = 1) -> str:
        """Ready is False for that very reason, at that generation; returns the message."""
        found = self.wait(Wanted("Ready", "False", reason, words, generation))
        obj = self.get()
        assert obj["status"]["observedGeneration"] == generation
        assert {item["type"] for item in obj["status"]["conditions"]} == set(conditions.TYPES)
        for item in obj["status"]["conditions"]:
            assert item["observedGeneration"] == generation
            assert item["reason"]
        message: str = found["message"]
        return message


def ready(host: str) -> dict[str, Any]:
    """Status of a pod that serves, as the API server wants it."""
    status = pod_objects.ready(host)
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        **status,
        "podIPs": [{"ip": host}],
        "conditions": [{**entry, "lastTransitionTime": now} for entry in status["conditions"]],
        "containerStatuses": [
            {"image": "i", "imageID": "i", **entry} for entry in status["containerStatuses"]
        ],
    }


@pytest.fixture
def chat(kube: Kube, operator: OperatorProcess, namespace: str) -> Iterator[Chat]:
    """The deployment, with ops ports that answer once told what."""
    answers = Answers()
    with stub_ops.listening(answers):
        yield Chat(kube, namespace, answers)
        kube.run("delete", "rwkv", "--all", "-n", namespace)


def test_when_all_pods_serve_it_is_ready_and_tells_the_model(chat: Chat) -> None:
    chat.run()
    status = chat.get()["status"]
    assert status["ready"] == "2/2"
    assert status["model"] == {"name": "chat", **stub_ops.MODEL}
    assert status["state"] == {"store": "perPod", "count": 4, "bytes": 600}
    assert {item["type"]: item["status"] for item in status["conditions"]} == {
        kind: "False" if kind in ("Progressing", "Degraded") else "True"
        for kind in conditions.TYPES
    }
    (line,) = chat.kube.run("get", "rwkv", "-n", chat.namespace, "--no-headers").splitlines()
    assert line.split()[:6] == ["chat", "chat", "cpu", "2/2", "perPod", "Ready"]

    def noted() -> bool:
        notes = chat.kube.items("events", "-n", chat.namespace)
        return ("Normal", "Ready") in {
            (note["type"], note["reason"])
            for note in notes
            if note["involvedObject"]["kind"] == names.DEPLOYMENT_KIND
        }

    wait_for(noted, "an event that tells it is Ready")


def test_a_crash_looping_init_container_is_the_reason(chat: Chat) -> None:
    chat.apply()
    pod = chat.pods("router")[0]["metadata"]["name"]
    chat.set(pod, pod_objects.crashed(1, said="haproxy.cfg: no such file", init=True))
    exited = f"{pod}: container agent-init exited with code 1 (Error)"
    chat.wait_cause("CrashLoopBackOff", exited, "haproxy.cfg: no such file")


def test_an_engine_killed_for_memory_is_the_reason_with_its_exit_code(chat: Chat) -> None:
    chat.apply()
    chat.set("chat-engine-1", pod_objects.crashed(137, "OOMKilled"))
    exited = "chat-engine-1: container engine exited with code 137 (OOMKilled)"
    chat.wait_cause("OOMKilled", exited)
    degraded = condition(chat.get(), "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "OOMKilled")


def test_a_pod_that_no_node_takes_is_the_reason_with_the_schedulers_words(chat: Chat) -> None:
    chat.apply()
    words = "0/3 nodes are available: 3 Insufficient memory."
    chat.set("chat-engine-0", pod_objects.unscheduled(words))
    assert chat.wait_cause("FailedScheduling", words) == f"chat-engine-0: {words}"


def test_an_image_that_cannot_be_pulled_is_the_reason(chat: Chat) -> None:
    chat.apply()
    words = 'failed to pull "registry.example/server:9": not found'
    chat.set("chat-engine-0", pod_objects.waiting("ImagePullBackOff", words))
    chat.wait_cause("ImagePullBackOff", words)


def test_a_wrong_tensor_is_the_reason_with_file_tensor_and_shapes(chat: Chat) -> None:
    chat.apply()
    chat.set("chat-engine-0", pod_objects.crashed(65, said=SAID))
    words = ("model.safetensors", "ffn.key.weight", "[384, 96]", "[512, 96]")
    chat.wait_cause("ModelInvalid", *words)
    loaded = condition(chat.get(), "ModelLoaded")
    assert (loaded["status"], loaded["reason"]) == ("False", "ModelInvalid")


def test_a_store_that_an_engine_cannot_write_is_the_reason_though_all_pods_serve(
    chat: Chat,
) -> None:
    store = {**stub_ops.STORE, "ok": False, "reason": "StoreDenied", "message": "state: read-only"}
    path = (stub_ops.ENGINES[1], names.PORT_ENGINE_OPS, "/report")
    chat.answers.own[path] = (200, {"model": stub_ops.MODEL, "store": store})
    chat.apply()
    chat.answers.common.update(stub_ops.serving("?").common)
    chat.set_ready("engine")
    told = "chat-engine-1: state: read-only"
    assert chat.wait_cause("StoreDenied", told) == told
    del chat.answers.own[path]


def test_old_pods_that_are_ready_do_not_make_a_stuck_update_ready(chat: Chat) -> None:
    chat.run()
    old = {pod["metadata"]["uid"] for pod in chat.pods("engine")}
    chat.patch({"engine": {"podTemplate": {"annotations": {"try": "2"}}}})
    new = wait_for(lambda: replaced(chat, old), "a pod of the new template", every=0.1)
    words = "failed to pull: no such image"
    chat.set(new, pod_objects.waiting("ImagePullBackOff", words))
    chat.wait_cause("ImagePullBackOff", words, generation=2)

    def told() -> tuple[str, str, int]:
        obj = chat.get()
        kinds = (condition(obj, kind)["status"] for kind in ("Progressing", "Available"))
        return (*kinds, obj["status"]["readyReplicas"])

    wait_for(lambda: told() == ("True", "True", 1), "one old pod to be all that serves")


def test_a_fixed_template_gets_past_the_pods_of_a_broken_one(chat: Chat) -> None:
    # With podManagementPolicy OrderedReady the StatefulSet would wait for the broken pod for ever.
    chat.run()
    old = {pod["metadata"]["uid"] for pod in chat.pods("engine")}
    chat.patch({"engine": {"podTemplate": {"annotations": {"try": "broken"}}}})
    broken = wait_for(lambda: replaced(chat, old), "a pod of the broken template", every=0.1)
    chat.set(broken, pod_objects.crashed(64, said="no such option"))
    chat.wait_cause("CrashLoopBackOff", generation=2)
    chat.patch({"engine": {"podTemplate": {"annotations": {"try": "fixed"}}}})

    def fixed() -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in chat.pods("engine")}
        return broken in pods and pods[broken]["metadata"]["annotations"].get("try") == "fixed"

    wait_for(fixed, "the broken pod's successor to have the fixed template", every=0.1)
    chat.set(broken, ready(stub_ops.ENGINES[int(broken[-1])]))
    # The other pod follows when this one has been ready for a while; that is Kubernetes' business.
    chat.wait_cause("Loading", "1 of 2 engines have loaded the model", generation=3)
    chat.wait(Wanted("Available", "True", "Serving", generation=3))


def replaced(chat: Chat, old: set[str]) -> str | None:
    """Name of an engine pod that isn't one of the old ones."""
    for pod in chat.pods("engine"):
        if pod["metadata"]["uid"] not in old:
            name: str = pod["metadata"]["name"]
            return name
    return None

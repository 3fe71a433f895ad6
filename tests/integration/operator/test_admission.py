"""Gates before and after a pod exists, on a real API server with nodes that tests equip.

There are no chips and no kubelets: labels and devices are patched onto nodes as discovery and
device plugins would, and a preflight's last words onto a pod. Replay 8's hardware twin is here:
a driver for CUDA 12, another resource name, and no labels at all are told before a pod exists.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deployments
import equipment
import node_objects
import operator_process
import pod_objects
import pytest
import yaml
from kube import Kube, Wanted, condition, wait_condition, wait_for
from operator_process import OperatorProcess

from rwkv_cluster.apiserver import ApiServer
from rwkv_operator import names

pytestmark = pytest.mark.apiserver

DRIVER = "nvidia.com/cuda.driver-version.full"
ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "hardware.md"
GOLDEN = ROOT / "tests" / "golden" / "admission" / "messages-admitted.yaml"
SAID = {
    "reason": "RuntimeMismatch",
    "message": "the container isn't what stack nvidia-cuda13 wants",
    "found": {"driver": "no driver", "computeCapability": "no device"},
    "wanted": {"driver": "at least 580", "computeCapability": "at least 7.5"},
}


def gpu_chat(**hardware: Any) -> dict[str, Any]:
    """A deployment on the GPU stack, which nobody has validated."""
    chosen = {"stack": "nvidia-cuda13", "acceptUnvalidated": True, **hardware}
    raw = deployments.raw({"hardware": chosen, "routing": {"replicas": 1}})
    meta = {"apiVersion": names.API_VERSION, "kind": names.DEPLOYMENT_KIND}
    return {**meta, "metadata": {"name": "chat"}, "spec": raw["spec"]}


class Hardware:
    """One node that tests equip, and a deployment that wants it."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace

    def apply(self, obj: dict[str, Any]) -> None:
        self.kube.apply({**obj, "metadata": {**obj["metadata"], "namespace": self.namespace}})

    def label(self, labels: dict[str, str | None]) -> None:
        equipment.label(self.kube, "chips", labels)

    def equip(self, devices: dict[str, int | None]) -> None:
        equipment.equip(self.kube, "chips", devices)

    def chat(self) -> dict[str, Any]:
        return self.kube.get("rwkv", "chat", "-n", self.namespace)

    def admitted(self, status: str, reason: str, *words: str) -> None:
        """Wait for a verdict whose message has these words."""
        wait_condition(self.chat, Wanted("Admitted", status, reason, words))

    def pods(self) -> list[dict[str, Any]]:
        found = self.kube.items(
            "pods", "-n", self.namespace, "-l", f"{names.LABEL_COMPONENT}=engine"
        )
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def engines(self) -> dict[str, Any]:
        return self.kube.get("statefulset", "chat-engine", "-n", self.namespace)


@pytest.fixture
def hardware(kube: Kube, operator: OperatorProcess, namespace: str) -> Iterator[Hardware]:
    kube.apply(node_objects.bare("chips"))
    yield Hardware(kube, namespace)
    kube.run("delete", "rwkv", "--all", "-n", namespace)
    kube.run("delete", "node", "chips")


def test_no_device_then_no_labels_then_an_old_driver_then_pods(hardware: Hardware) -> None:
    hardware.apply(gpu_chat())
    hardware.admitted("False", "NoMatchingNode", "nvidia.com/gpu: 0 allocatable, wanted 1")
    hardware.equip({"nvidia.com/gpu": 1})
    hardware.admitted("Unknown", "LabelsMissing", DRIVER, "GPU feature discovery")
    hardware.label({**node_objects.GPU_LABELS, DRIVER: "550.54.15"})
    too_old = f"node chips: {DRIVER} is 550.54.15, wanted at least 580"
    hardware.admitted("False", "DriverTooOld", too_old)
    assert not hardware.kube.exists("statefulset", "chat-engine", "-n", hardware.namespace)
    hardware.label({DRIVER: "580.95.05"})
    hardware.admitted("True", "Admitted")
    wait_for(hardware.pods, "an engine pod")
    (pod,) = hardware.pods()
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    hardware.equip({"nvidia.com/gpu": None})
    hardware.admitted("False", "NoMatchingNode")
    assert hardware.pods(), "what runs already is left alone"


def test_a_resource_of_another_name_is_suggested(hardware: Hardware) -> None:
    hardware.label(dict(node_objects.NPU_LABELS))
    hardware.equip({"huawei.com/Ascend910B3": 8})
    hardware.apply(gpu_chat(stack="ascend-910b3"))
    suggestion = "it has huawei.com/Ascend910B3: set spec.hardware.resourceName"
    hardware.admitted("False", "NoMatchingNode", suggestion)
    hardware.apply(gpu_chat(stack="ascend-910b3", resourceName="huawei.com/Ascend910B3"))
    hardware.admitted("True", "Admitted")
    hardware.label({"node.kubernetes.io/npu.chip.name": "910B2"})
    hardware.admitted("False", "ChipMismatch", "is 910B2, wanted 910B3")


@pytest.mark.parametrize(
    ("case", "fields"),
    [
        ("a stack without evidence", {"acceptUnvalidated": False}),
        ("too many devices", {"devicesPerReplica": 2}),
    ],
)
def test_what_a_stack_is_not_for_is_refused_in_the_reviewed_words(
    hardware: Hardware, case: str, fields: dict[str, Any]
) -> None:
    hardware.apply(gpu_chat(**fields))
    wanted = yaml.safe_load(GOLDEN.read_text())[case]
    hardware.admitted(wanted["status"], wanted["reason"], wanted["message"])
    assert not hardware.kube.exists("statefulset", "chat-engine", "-n", hardware.namespace)


def test_a_refusal_outlives_the_operator_and_ends_with_its_cause(
    hardware: Hardware, apiserver_with_workloads: ApiServer, tmp_path: Path
) -> None:
    hardware.equip({"nvidia.com/gpu": 1})
    hardware.label(dict(node_objects.GPU_LABELS))
    hardware.apply(gpu_chat())
    (pod,) = wait_for(hardware.pods, "an engine pod")
    status = json.dumps({"status": pod_objects.crashed(78, said=SAID)})
    place = ("pod", pod["metadata"]["name"], "-n", hardware.namespace)
    hardware.kube.run("patch", *place, "--subresource=status", "--type=merge", "-p", status)
    words = ("found driver: no driver", "wanted driver: at least 580")
    hardware.admitted("False", "RuntimeMismatch", *words)
    wait_for(lambda: not hardware.pods(), "the engine to go")
    assert hardware.engines()["spec"]["replicas"] == 0
    assert hardware.chat()["spec"]["replicas"] == 1
    assert condition(hardware.chat(), "Ready")["reason"] == "RuntimeMismatch"

    kubeconfig = apiserver_with_workloads.user(operator_process.USER)
    with operator_process.running(kubeconfig, tmp_path / "second.log"):
        # Whatever wakes it, an operator that knows nothing leaves the engines away.
        hardware.kube.run("annotate", "rwkv", "chat", "-n", hardware.namespace, "look=again")
        hardware.kube.run("label", "pod,service", "--all", "-n", hardware.namespace, "look=again")
        time.sleep(2)
    assert hardware.engines()["spec"]["replicas"] == 0

    hardware.label({"driver": "was-upgraded"})
    wait_for(hardware.pods, "an engine, as its node has changed")
    hardware.admitted("True", "Admitted")
    assert hardware.engines()["spec"]["replicas"] == 1


def test_kubectl_lists_stacks_as_the_page_shows_it(hardware: Hardware) -> None:
    hardware.equip({"nvidia.com/gpu": 2})
    hardware.label(dict(node_objects.GPU_LABELS))

    def table() -> list[list[str]]:
        text = hardware.kube.run("get", "rwkvstacks")
        return [line.split()[:-1] for line in text.splitlines()]

    shown = page_table(PAGE.read_text())
    wait_for(lambda: table() == shown, f"the table to be as in the page; it is {table()}")


def page_table(text: str) -> list[list[str]]:
    """The output of `kubectl get rwkvstacks` in the page, without ages."""
    block = text.split("$ kubectl get rwkvstacks\n", 1)[1].split("```", 1)[0]
    return [line.split()[:-1] for line in block.splitlines()]

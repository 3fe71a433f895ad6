"""Every reason that Admitted can have, with the message that a user reads, in one golden file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import deployments
import golden
import node_objects
import observations
import pod_objects

from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.node import Node
from rwkv_operator.decide import admission, refusal
from rwkv_operator.errors import InvalidSpec

GPU = deployments.catalogue("nvidia-cuda13")
NPU = deployments.catalogue("ascend-910b3")
OLD = node_objects.gpu("gpu-old", **{"nvidia.com/cuda.driver-version.full": "550.54.15"})
OTHER_NAME = node_objects.parsed("npu-a", node_objects.NPU_LABELS, {"huawei.com/Ascend910B3": 8})
OTHER_CHIP = node_objects.npu("npu-b", **{"node.kubernetes.io/npu.chip.name": "910B2"})
BLANK = node_objects.parsed("gpu-blank", {}, {"nvidia.com/gpu": 4})
CPU = node_objects.parsed("cpu-a")
SAID = {
    "reason": "RuntimeMismatch",
    "message": "the container isn't what stack ascend-910b3 wants",
    "found": {"chip": "no chip", "cann": "8.5.1"},
    "wanted": {"chip": "Ascend910B3", "cann": "8.5.0"},
}


def decide(stack: Any, *nodes: Node, known: tuple[str, ...] = (), **hardware: Any) -> Condition:
    name = getattr(stack, "name", "cpu")
    dep = deployments.parsed({"hardware": {"stack": name, "acceptUnvalidated": True, **hardware}})
    return admission.decide_admission(dep, stack, nodes, known).condition


def mismatch() -> Condition:
    pod = observations.engine(0, **pod_objects.crashed(78, said=SAID))
    seen = observations.starting(replace(pod, node="npu-a"))
    return refusal.decide_disagreement(observations.ADMITTED, seen)


def agreement() -> Condition:
    dep = deployments.parsed({"hardware": {"stack": "nvidia-cuda13", "onUnknown": "Proceed"}})
    unknown = decide(GPU, BLANK, onUnknown="Proceed")
    return admission.decide_agreement(dep, unknown, observations.serving())


CASES = {
    "a node that fits": lambda: decide(GPU, node_objects.gpu()),
    "a spec that can't be read": lambda: admission.decide_unreadable(
        InvalidSpec("spec.replicas", "many", "a whole number")
    ),
    "no such stack": lambda: decide(None, CPU, known=("nvidia-cuda13", "ascend-910b3")),
    "no stack at all": lambda: decide(None, CPU),
    "a stack that can't be read": lambda: decide(
        InvalidSpec("spec.vendor", "abacus", "one of cpu, nvidia, ascend"), CPU
    ),
    "a stack without evidence": lambda: decide(GPU, node_objects.gpu(), acceptUnvalidated=False),
    "too many devices": lambda: decide(GPU, node_objects.gpu(), devicesPerReplica=2),
    "two partitions": lambda: decide(
        replace(GPU, supports=replace(GPU.supports, devices_per_replica=())),
        node_objects.gpu(),
        devicesPerReplica=2,
        resourceName="nvidia.com/mig-1g.10gb",
    ),
    "no device": lambda: decide(GPU, CPU),
    "a driver for CUDA 12": lambda: decide(GPU, OLD, CPU),
    "another chip": lambda: decide(NPU, OTHER_CHIP, CPU),
    "a device of another name": lambda: decide(NPU, OTHER_NAME),
    "a node of another pool": lambda: decide(
        GPU, node_objects.gpu(), nodeSelector={"pool": "talk"}
    ),
    "no labels, Wait": lambda: decide(GPU, BLANK, CPU),
    "no labels, Refuse": lambda: decide(GPU, BLANK, CPU, onUnknown="Refuse"),
    "no labels, Proceed": lambda: decide(GPU, BLANK, CPU, onUnknown="Proceed"),
    "no labels, and a preflight that agrees": agreement,
    "a preflight that refuses": mismatch,
}


def test_every_message_is_as_reviewed() -> None:
    verdicts = {case: make() for case, make in CASES.items()}
    table = {
        case: {"status": v.status, "reason": v.reason, "message": v.message}
        for case, v in verdicts.items()
    }
    golden.check("admission", {"kind": "Messages", "metadata": {"name": "admitted"}, **table})
    assert {v.reason for v in verdicts.values()} == set(conditions.REASONS[conditions.ADMITTED])


def test_only_what_nobody_knows_is_unknown() -> None:
    unknown = {case for case, make in CASES.items() if make().status == "Unknown"}
    assert unknown == {"no labels, Wait", "no labels, Proceed"}


def test_pods_are_made_where_it_is_admitted_or_the_user_proceeds() -> None:
    dep = deployments.parsed({"hardware": {"stack": "nvidia-cuda13", "acceptUnvalidated": True}})
    assert admission.decide_admission(dep, GPU, [node_objects.gpu()]).allowed
    assert not admission.decide_admission(dep, GPU, [BLANK]).allowed
    going_on = deployments.parsed(
        {
            "hardware": {
                "stack": "nvidia-cuda13",
                "acceptUnvalidated": True,
                "onUnknown": "Proceed",
            }
        }
    )
    verdict = admission.decide_admission(going_on, GPU, [BLANK])
    assert verdict.allowed
    assert verdict.candidates == (BLANK,)
    assert not admission.decide_admission(going_on, GPU, [OLD]).allowed

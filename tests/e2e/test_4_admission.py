"""GPU and Ascend pods on a node that only claims to have such chips: each gate tells what it sees.

Devices and labels are patched onto the node; the scheduler, the kubelet, the engine image and its
preflight are real. No chip is there, and the preflight has to say just that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import equipment
import installation
import node_objects
import pytest
import yaml
from kube import Wanted, wait_for
from world import World, deployment

from rwkv_operator import names
from rwkv_operator.api import conditions

pytestmark = pytest.mark.cluster

STACKS = installation.ROOT / "crds" / "stacks"
EVIDENCE = STACKS / "evidence" / "cpu" / "evidence.json"
JOB = installation.ROOT / "crds" / "samples" / "jobs" / "acceptance.yaml"
ARCHITECTURE = "kubernetes.io/arch"
LITTLE = {"requests": {"cpu": "50m", "memory": "64Mi"}}


@dataclass(frozen=True)
class Case:
    """One vendor: its stack of the catalogue, what a fitting node shows, what isn't found there.

    Attributes:
        refused: requirements that the preflight can't find met, and what they want.
    """

    name: str
    stack: str
    resource: str
    labels: dict[str, str]
    refused: dict[str, str]


GPU = Case(
    "gpu",
    "nvidia-cuda13",
    "nvidia.com/gpu",
    node_objects.GPU_LABELS,
    {"driver": "at least 580", "devices": "1"},
)
NPU = Case(
    "npu",
    "ascend-910b3",
    "huawei.com/Ascend910",
    {key: value for key, value in node_objects.NPU_LABELS.items() if "arch" not in key},
    {"chip": "Ascend910B3", "devices": "1", "cann": "8.5.0"},
)


def own_stack(case: Case, image: str, architecture: str) -> dict[str, Any]:
    """The catalogue's stack with an image that the cluster has, for its nodes' architecture."""
    stack: dict[str, Any] = yaml.safe_load((STACKS / f"{case.stack}.yaml").read_text())
    spec = stack["spec"]
    others = [need for need in spec["nodeRequirements"] if need.get("label") != ARCHITECTURE]
    spec["nodeRequirements"] = [{"label": ARCHITECTURE, "in": [architecture]}, *others]
    spec["runtimeRequirements"]["architecture"] = [architecture]
    spec |= {"engineImage": image, "resources": LITTLE}
    return {**stack, "metadata": {"name": f"e2e-{case.name}"}}


@pytest.fixture(params=[GPU, NPU], ids=lambda case: case.name)
def case(world: World, request: pytest.FixtureRequest) -> Iterator[Case]:
    """A vendor whose stack is in the cluster; afterwards every node is as it was."""
    case: Case = request.param
    before = shown(world)
    architecture = before["metadata"]["labels"][ARCHITECTURE]
    world.kube.apply(own_stack(case, world.images["server"], architecture))
    yield case
    world.kube.run("delete", "rwkv", case.name, "--ignore-not-found")
    world.kube.run("delete", "rwkvstack", f"e2e-{case.name}")
    equipment.equip(world.kube, before["metadata"]["name"], {case.resource: None})
    equipment.label(world.kube, before["metadata"]["name"], dict.fromkeys(case.labels))
    assert shown(world) == before


def shown(world: World) -> dict[str, Any]:
    """The node, as far as tests change it."""
    node = world.kube.items("nodes")[0]
    return {
        "metadata": {key: node["metadata"][key] for key in ("name", "labels")},
        "devices": {key: set(node["status"][key]) for key in ("capacity", "allocatable")},
    }


def test_a_claimed_device_gets_a_pod_whose_preflight_says_that_it_is_not_there(
    world: World, case: Case
) -> None:
    kube, node = world.kube, shown(world)["metadata"]["name"]
    obj = deployment(case.name)
    obj["spec"]["hardware"] = {"stack": f"e2e-{case.name}", "acceptUnvalidated": True}
    kube.apply(obj)
    none = Wanted("Admitted", "False", "NoMatchingNode", (f"{case.resource}: 0 allocatable",))
    world.wait_condition(case.name, none)
    assert not kube.exists("statefulset", f"{case.name}-engine")

    equipment.equip(kube, node, {case.resource: 1})
    unknown = Wanted("Admitted", "Unknown", "LabelsMissing", tuple(case.labels)[-1:])
    world.wait_condition(case.name, unknown)
    assert not kube.exists("statefulset", f"{case.name}-engine")

    equipment.label(kube, node, case.labels)
    told = [f"{what}, wanted {wanted}, could not be read" for what, wanted in case.refused.items()]
    mismatch = Wanted("Admitted", "False", conditions.RUNTIME_MISMATCH, (node, *told))
    world.wait_condition(case.name, mismatch, timeout=180)
    wait_for(lambda: not world.engine_pods(case.name), "the refused engine to go")
    engines = kube.get("statefulset", f"{case.name}-engine")
    assert engines["spec"]["replicas"] == 0
    kept = json.loads(engines["metadata"]["annotations"][names.ANNOTATION_REFUSAL])
    for what, wanted in case.refused.items():
        assert f"{what}: unknown" in kept["found"] and f"{what}: {wanted}" in kept["wanted"]
    assert kube.get("rwkv", case.name)["spec"]["replicas"] == 1
    (container,) = engines["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"][case.resource] == "1"
    assert scheduled(world, f"{case.name}-engine-0") == {node}


def scheduled(world: World, pod: str) -> set[str]:
    """The nodes that the scheduler gave to pods of that name."""
    fields = f"involvedObject.name={pod},reason=Scheduled"
    events = world.kube.items("events", "--field-selector", fields)
    return {event["message"].rpartition(" ")[2] for event in events}


def test_the_acceptance_job_passes_with_the_trace_of_the_committed_evidence(world: World) -> None:
    stack = (STACKS / "cpu.yaml").read_text()
    meta = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rwkv-stack"}}
    world.kube.apply({**meta, "data": {"stack.yaml": stack}})
    job = yaml.safe_load(JOB.read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["image"] = world.images["server"]
    world.kube.apply(job)
    ends = ("Complete", "Failed")

    def ended() -> set[str]:
        status = world.kube.get("job", "rwkv-acceptance")["status"]
        return {c["type"] for c in status.get("conditions", []) if c["type"] in ends}

    found = wait_for(ended, "the acceptance to end", timeout=240, every=1)
    said = world.kube.logs("job/rwkv-acceptance")
    assert found == {"Complete"}, said
    assert "\nACCEPTANCE_OK\n" in said
    assert f"trace sha256 {json.loads(EVIDENCE.read_text())['trace']}" in said
    world.kube.run("delete", "job/rwkv-acceptance", "configmap/rwkv-stack")

import itertools

import deployments
import node_objects
import pytest

from rwkv_operator.api.node import Node
from rwkv_operator.api.stack import NodeRequirement
from rwkv_operator.decide import nodes
from rwkv_operator.decide.nodes import Needs, decide_fit, examine

CUDA = nodes.build_needs(deployments.catalogue("nvidia-cuda13"))
ASCEND = nodes.build_needs(deployments.catalogue("ascend-910b3"))
DRIVER = "nvidia.com/cuda.driver-version.full"
DEVICE = {"nvidia.com/gpu": 1}


def without(node: Node, *labels: str) -> Node:
    kept = {key: value for key, value in node.labels.items() if key not in labels}
    return Node(node.name, node.uid, kept, node.devices, node.taints, node.system)


@pytest.mark.parametrize(
    ("needs", "node", "reason", "text"),
    [
        pytest.param(CUDA, node_objects.gpu(), None, "", id="a GPU node as it should be"),
        pytest.param(ASCEND, node_objects.npu(), None, "", id="an NPU node as it should be"),
        pytest.param(
            CUDA,
            node_objects.gpu(**{DRIVER: "550.54.15"}),
            "DriverTooOld",
            "is 550.54.15, wanted at least 580",
            id="a driver for CUDA 12 against a stack for CUDA 13",
        ),
        pytest.param(
            CUDA,
            node_objects.gpu(**{DRIVER: "1000.1"}),
            None,
            "",
            id="versions are compared as numbers, not as texts",
        ),
        pytest.param(
            CUDA,
            node_objects.gpu(
                **{"nvidia.com/gpu.compute.major": "7", "nvidia.com/gpu.compute.minor": "0"}
            ),
            "ChipMismatch",
            "nvidia.com/gpu.compute.major.minor is 7.0, wanted at least 7.5",
            id="two labels make one version",
        ),
        pytest.param(
            ASCEND,
            node_objects.npu(**{"node.kubernetes.io/npu.chip.name": "910B2"}),
            "ChipMismatch",
            "node.kubernetes.io/npu.chip.name is 910B2, wanted 910B3",
            id="another chip",
        ),
        pytest.param(
            ASCEND,
            node_objects.npu(**{"huawei.com/driver.version": "25.0.rc1"}),
            "DriverTooOld",
            "is 25.0.rc1, wanted at least 25.0",
            id="a release candidate is before its release",
        ),
        pytest.param(
            CUDA,
            node_objects.gpu(**{DRIVER: "unknown"}),
            "LabelsMissing",
            "isn't a version",
            id="a version that can't be read is unknown",
        ),
        pytest.param(
            CUDA,
            without(node_objects.gpu(), DRIVER),
            "LabelsMissing",
            f"label {DRIVER} missing, set by NVIDIA's GPU feature discovery",
            id="a missing label is unknown, and who sets it is told",
        ),
        pytest.param(
            CUDA,
            node_objects.parsed("bare", node_objects.GPU_LABELS),
            "NoMatchingNode",
            "nvidia.com/gpu: 0 allocatable, wanted 1",
            id="labels without a device",
        ),
        pytest.param(
            CUDA,
            node_objects.parsed("mig", node_objects.GPU_LABELS, {"nvidia.com/mig-1g.10gb": 7}),
            "NoMatchingNode",
            "it has nvidia.com/mig-1g.10gb: set spec.hardware.resourceName",
            id="a partition is suggested",
        ),
        pytest.param(
            ASCEND,
            node_objects.parsed(
                "hami",
                node_objects.NPU_LABELS,
                {"huawei.com/Ascend910B3": 8, "huawei.com/Ascend910B3-memory": 512},
            ),
            "NoMatchingNode",
            "it has huawei.com/Ascend910B3: set spec.hardware.resourceName",
            id="another plugin's name is suggested, its companions aren't",
        ),
    ],
)
def test_a_node_against_a_stack(needs: Needs, node: Node, reason: str | None, text: str) -> None:
    fit = decide_fit(needs, [node])
    assert fit.reason == reason
    assert text in fit.message


@pytest.mark.parametrize(
    ("requirement", "labels", "reasons"),
    [
        (NodeRequirement(("a",), ("x", "y")), {"a": "y"}, []),
        (NodeRequirement(("a",), ("x",)), {"a": "y"}, ["NoMatchingNode"]),
        (NodeRequirement(("a",), ("x",)), {}, ["LabelsMissing"]),
        (NodeRequirement(("a",)), {"a": ""}, []),
        (NodeRequirement(("a",)), {}, ["LabelsMissing"]),
        (NodeRequirement(("driver", "b"), at_least="1.2"), {"driver": "1"}, ["LabelsMissing"]),
        (NodeRequirement(("driver", "b"), at_least="1.2"), {"driver": "1", "b": "2"}, []),
    ],
)
def test_a_requirement_against_labels(
    requirement: NodeRequirement, labels: dict[str, str], reasons: list[str]
) -> None:
    node = Node("n", "u", labels)
    assert [problem.reason for problem in examine(node, Needs((requirement,)))] == reasons


@pytest.mark.parametrize(
    ("tolerations", "borne"),
    [
        ((), False),
        (({"operator": "Exists"},), True),
        (({"key": "gpu", "operator": "Exists"},), True),
        (({"key": "gpu", "operator": "Exists", "effect": "NoExecute"},), False),
        (({"key": "gpu", "value": "yes"},), True),
        (({"key": "gpu", "operator": "Equal", "value": "no"},), False),
        (({"key": "npu", "operator": "Exists"},), False),
    ],
)
def test_taints_need_a_toleration(tolerations: tuple[dict[str, str], ...], borne: bool) -> None:
    taints = [
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    ]
    node = node_objects.parsed(taints=taints)
    fit = decide_fit(Needs(tolerations=tolerations), [node])
    assert (fit.reason is None) is borne
    if not borne:
        assert "taint gpu=yes:NoSchedule isn't tolerated" in fit.message


def test_a_selector_narrows_the_choice() -> None:
    chosen = node_objects.gpu("a", pool="talk")
    hardware = deployments.parsed(
        {"hardware": {"stack": "nvidia-cuda13", "nodeSelector": {"pool": "talk"}}}
    ).spec.hardware
    needs = nodes.build_needs(deployments.catalogue("nvidia-cuda13"), hardware)
    assert decide_fit(needs, [node_objects.gpu("b"), chosen]).matching == (chosen,)
    fit = decide_fit(needs, [node_objects.gpu("b", pool="other"), node_objects.gpu("c")])
    assert fit.reason == "NoMatchingNode"
    assert "label pool is other, nodeSelector wants talk" in fit.message
    assert "label pool is not set, nodeSelector wants talk" in fit.message


def test_a_deployment_may_name_the_resource_and_want_several_devices() -> None:
    hardware = deployments.parsed(
        {
            "hardware": {
                "stack": "nvidia-cuda13",
                "resourceName": "nvidia.com/mig-1g.10gb",
                "devicesPerReplica": 2,
            }
        }
    ).spec.hardware
    needs = nodes.build_needs(deployments.catalogue("nvidia-cuda13"), hardware)
    for count, fits in ((1, False), (2, True)):
        node = node_objects.parsed("a", node_objects.GPU_LABELS, {needs.resource or "": count})
        assert bool(decide_fit(needs, [node]).matching) is fits


def test_one_node_that_fits_is_enough_whatever_the_others() -> None:
    others = [node_objects.parsed("cpu"), without(node_objects.gpu("blank"), DRIVER)]
    for order in itertools.permutations([*others, node_objects.gpu("good")]):
        fit = decide_fit(CUDA, order)
        assert [node.name for node in fit.matching] == ["good"]
        assert fit.reason is None


def test_unknown_wins_over_no_and_the_closest_node_gives_the_reason() -> None:
    cpu = node_objects.parsed("cpu")
    old = node_objects.gpu("old", **{DRIVER: "550.1"})
    blank = without(node_objects.gpu("blank"), DRIVER)
    assert decide_fit(CUDA, [cpu, old]).reason == "DriverTooOld"
    assert decide_fit(CUDA, [cpu, old, blank]).reason == "LabelsMissing"
    # A node without the device isn't unknown: no pod can be scheduled there.
    assert decide_fit(CUDA, [cpu]).reason == "NoMatchingNode"


def test_many_alike_nodes_make_a_short_message() -> None:
    fleet = [node_objects.gpu(f"n{i:03}", **{DRIVER: "550.1"}) for i in range(200)]
    kinds = [node_objects.gpu(f"k{i}", **{DRIVER: f"55{i}.1"}) for i in range(9)]
    message = decide_fit(CUDA, [*fleet, *kinds]).message
    assert "none of 209 nodes fits" in message
    assert "and 5 kinds of nodes more" in message
    assert len(message) < 600


def test_a_cluster_without_nodes() -> None:
    assert decide_fit(CUDA, []).message == "the cluster has no nodes"

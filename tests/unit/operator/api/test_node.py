import copy

import node_objects
import pytest

from rwkv_operator.api.node import parse_node


def test_what_decides_about_engines_is_read() -> None:
    obj = node_objects.node(
        "gpu-a",
        {"pool": "talk"},
        {"nvidia.com/gpu": 2},
        [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
    )
    node = parse_node(obj)
    assert node.labels == {"kubernetes.io/arch": "amd64", "pool": "talk"}
    assert node.devices == {"nvidia.com/gpu": 2}
    assert node.taints == (("gpu", "yes", "NoSchedule"),)


def test_a_node_that_says_little() -> None:
    node = parse_node({"metadata": {"name": "n"}})
    assert (node.labels, node.devices, node.taints) == ({}, {}, ())


@pytest.mark.parametrize(
    ("path", "value", "same"),
    [
        (("status", "allocatable", "memory"), "1Gi", True),
        (("status", "conditions"), [{"type": "Ready", "status": "False"}], True),
        (("spec", "taints"), [{"key": "node.kubernetes.io/x", "effect": "NoExecute"}], True),
        (("spec", "unschedulable"), True, True),
        (("status", "allocatable", "nvidia.com/gpu"), "1", False),
        (("metadata", "labels", "pool"), "b", False),
        (("status", "nodeInfo", "bootID"), "boot-2", False),
        (("spec", "taints"), [{"key": "x", "effect": "NoExecute"}], False),
    ],
)
def test_only_a_change_of_it_makes_another_node(
    path: tuple[str, ...], value: object, same: bool
) -> None:
    obj = node_objects.node(devices={"nvidia.com/gpu": 2})
    changed = copy.deepcopy(obj)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert (parse_node(changed) == parse_node(obj)) is same

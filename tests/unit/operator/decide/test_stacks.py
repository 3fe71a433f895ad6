from dataclasses import replace

import deployments
import node_objects

from rwkv_operator.api.stack import Evidence
from rwkv_operator.decide import stacks

NOW = "2026-01-02T00:00:00Z"
NODES = [
    node_objects.gpu("a"),
    node_objects.gpu("b", **{"nvidia.com/cuda.driver-version.full": "550.1"}),
    node_objects.gpu("c", **{"nvidia.com/cuda.driver-version.full": "550.1"}),
    node_objects.parsed("d"),
]
GPU = deployments.catalogue("nvidia-cuda13")


def test_the_status_counts_nodes_and_says_why_the_others_do_not_match() -> None:
    status = stacks.build_stack_status(GPU, NODES, {}, NOW)
    assert status["matchingNodes"] == 1
    assert {
        "reason": "DriverTooOld",
        "message": "nvidia.com/cuda.driver-version.full is 550.1, wanted at least 580",
        "nodes": 2,
        "example": "b",
    } in status["otherNodes"]
    told = {entry["reason"]: entry["example"] for entry in status["otherNodes"]}
    assert told == {"DriverTooOld": "b", "NoMatchingNode": "d", "LabelsMissing": "d"}
    by_type = {entry["type"]: entry for entry in status["conditions"]}
    assert by_type["NodesMatch"]["status"] == "True"
    assert (by_type["Validated"]["status"], by_type["Validated"]["reason"]) == (
        "False",
        "NoEvidence",
    )


def test_the_columns_tell_chip_and_vllm_of_every_stack() -> None:
    columns = {}
    for path in sorted((deployments.CRDS / "stacks").glob("*.yaml")):
        status = stacks.build_stack_status(deployments.catalogue(path.stem), NODES, {}, NOW)
        columns[path.stem] = (status["chip"], status["vllm"], status["evidence"])
    assert columns == {
        "ascend-910b3": ("Ascend910B3", "0.18.0", "Unvalidated"),
        "ascend-910b3-vendor": ("Ascend910B3", "0.18.0", "Unvalidated"),
        "cpu": ("amd64,arm64", "0.32.0", "Unvalidated"),
        "nvidia-cuda13": ("sm>=7.5", "0.32.0", "Unvalidated"),
    }


def test_a_second_look_at_the_same_changes_nothing() -> None:
    first = stacks.build_stack_status(GPU, NODES, {}, NOW)
    later = stacks.build_stack_status(GPU, list(reversed(NODES)), first, "2026-01-03T00:00:00Z")
    assert later == first


def test_without_a_node_that_can_tell_it_is_unknown() -> None:
    blank = node_objects.parsed("blank", {}, {"nvidia.com/gpu": 1})
    status = stacks.build_stack_status(GPU, [blank], {}, NOW)
    (match,) = (entry for entry in status["conditions"] if entry["type"] == "NodesMatch")
    assert (match["status"], match["reason"]) == ("Unknown", "LabelsMissing")


def test_evidence_is_told_with_its_hash() -> None:
    known = replace(GPU, evidence=Evidence("Validated", "a report", "f" * 64))
    status = stacks.build_stack_status(known, NODES, {}, NOW)
    assert status["evidence"] == "Validated"
    (told,) = (entry for entry in status["conditions"] if entry["type"] == "Validated")
    assert (told["status"], told["message"]) == ("True", f"a report, SHA-256 {'f' * 64}")

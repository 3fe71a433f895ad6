from pathlib import Path
from typing import Any

import pytest

from rwkv_cluster import addons, provisioner

FOLDER = Path("/volumes")
POLICIES = {"standard": "Delete", "standard-retain": "Retain"}


def claim(**changes: Any) -> dict[str, Any]:
    spec = {
        "storageClassName": "standard",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {
        "metadata": {
            "name": "state-chat-engine-0",
            "namespace": "default",
            "uid": "u1",
            "annotations": {provisioner.SELECTED_NODE: "node1"},
            **changes.pop("metadata", {}),
        },
        "spec": {**spec, **changes},
    }


def volume(phase: str, policy: str = "Delete", owner: str = addons.PROVISIONER) -> dict[str, Any]:
    annotations = {provisioner.PROVISIONED_BY: owner}
    return {
        "metadata": {"name": "pvc-u1", "annotations": annotations},
        "spec": {"persistentVolumeReclaimPolicy": policy},
        "status": {"phase": phase},
    }


def test_a_claim_with_a_node_gets_a_volume_there() -> None:
    plan = provisioner.decide([claim()], [], POLICIES, FOLDER)
    assert plan.delete == ()
    [made] = plan.create
    assert made["metadata"]["name"] == "pvc-u1"
    spec = made["spec"]
    assert spec["local"] == {"path": "/volumes/pvc-u1"}
    assert spec["claimRef"]["uid"] == "u1"
    assert spec["persistentVolumeReclaimPolicy"] == "Delete"
    terms = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"][0]["values"] == ["node1"]


def test_the_class_decides_what_becomes_of_the_data() -> None:
    plan = provisioner.decide([claim(storageClassName="standard-retain")], [], POLICIES, FOLDER)
    assert plan.create[0]["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


@pytest.mark.parametrize(
    "other",
    [
        claim(metadata={"annotations": {}}),
        claim(storageClassName="someone-elses"),
        claim(volumeName="pvc-u1"),
        claim(metadata={"deletionTimestamp": "now"}),
    ],
    ids=["no node chosen yet", "another class", "bound", "being deleted"],
)
def test_claims_that_are_not_ours_to_serve_are_left_alone(other: dict[str, Any]) -> None:
    assert provisioner.decide([other], [], POLICIES, FOLDER).create == ()


def test_a_second_look_makes_nothing_twice() -> None:
    assert provisioner.decide([claim()], [volume("Available")], POLICIES, FOLDER).create == ()


@pytest.mark.parametrize(
    ("found", "deleted"),
    [
        (volume("Released"), True),
        (volume("Bound"), False),
        (volume("Released", policy="Retain"), False),
        (volume("Released", owner="someone else"), False),
    ],
    ids=["released", "bound", "to be kept", "of another provisioner"],
)
def test_only_our_released_volumes_go(found: dict[str, Any], deleted: bool) -> None:
    assert bool(provisioner.decide([], [found], POLICIES, FOLDER).delete) is deleted

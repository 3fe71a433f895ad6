"""Gives claims their volumes: one folder each, on the node that the scheduler chose.

Looks twice a second at what there is and does what is missing; it keeps nothing in memory. Run as
`python -m rwkv_cluster.provisioner URL PKI FOLDER`.
"""

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from rwkv_cluster import addons, errors, kube

PAUSE_SECONDS = 0.5
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_VOLUMES = "/api/v1/persistentvolumes"
_CLAIMS = "/api/v1/persistentvolumeclaims"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


@dataclass(frozen=True)
class Plan:
    """What a pass has to do: volumes to make, and names of volumes to remove with their data."""

    create: tuple[dict[str, Any], ...]
    delete: tuple[str, ...]


def decide(
    claims: Sequence[Mapping[str, Any]],
    volumes: Sequence[Mapping[str, Any]],
    policies: Mapping[str, str],
    folder: Path,
) -> Plan:
    """Compare claims with volumes.

    Args:
        claims: All PersistentVolumeClaims.
        volumes: All PersistentVolumes.
        policies: Reclaim policy of each of our storage classes.
        folder: Where volumes' folders are.
    """
    existing = {volume["metadata"]["name"] for volume in volumes}
    wanted = [
        build_volume(claim, policies[claim["spec"]["storageClassName"]], folder)
        for claim in claims
        if _is_ours(claim, policies)
    ]
    return Plan(
        tuple(volume for volume in wanted if volume["metadata"]["name"] not in existing),
        tuple(volume["metadata"]["name"] for volume in volumes if _is_done_with(volume)),
    )


def build_volume(claim: Mapping[str, Any], policy: str, folder: Path) -> dict[str, Any]:
    """Return the volume for a claim.

    It is of type `local`, not `hostPath`: the kubelet then applies a pod's fsGroup.
    """
    metadata, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{metadata['uid']}"
    node = metadata["annotations"][SELECTED_NODE]
    on_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: addons.PROVISIONER}},
        "spec": {
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": policy,
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "local": {"path": str(folder / name)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        },
    }


def _is_ours(claim: Mapping[str, Any], policies: Mapping[str, str]) -> bool:
    metadata, spec = claim["metadata"], claim["spec"]
    return (
        spec.get("storageClassName") in policies
        and not spec.get("volumeName")
        and "deletionTimestamp" not in metadata
        and SELECTED_NODE in metadata.get("annotations", {})
    )


def _is_done_with(volume: Mapping[str, Any]) -> bool:
    return (
        volume["metadata"].get("annotations", {}).get(PROVISIONED_BY) == addons.PROVISIONER
        and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        and volume.get("status", {}).get("phase") == "Released"
        and "deletionTimestamp" not in volume["metadata"]
    )


def run_pass(client: kube.Client, folder: Path) -> None:
    """Look once and do what is missing."""
    policies = {
        each["metadata"]["name"]: each["reclaimPolicy"]
        for each in _list(client, _CLASSES)
        if each["provisioner"] == addons.PROVISIONER
    }
    plan = decide(_list(client, _CLAIMS), _list(client, _VOLUMES), policies, folder)
    for volume in plan.create:
        name = volume["metadata"]["name"]
        (folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)
        client.apply(f"{_VOLUMES}/{name}", volume)
        print(f"{name}: made", flush=True)
    for name in plan.delete:
        shutil.rmtree(folder / name, ignore_errors=True)
        client.delete(f"{_VOLUMES}/{name}")
        print(f"{name}: removed", flush=True)


def _list(client: kube.Client, path: str) -> list[dict[str, Any]]:
    found = client.get(path) or {}
    items: list[dict[str, Any]] = found.get("items", [])
    return items


def main() -> None:
    """Work until killed."""
    url, pki, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    client = kube.Client(url, pki)
    while True:
        try:
            run_pass(client, folder)
        except (errors.ClusterError, httpx.HTTPError) as failure:
            print(f"pass failed, will be tried again: {failure}", flush=True)
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()

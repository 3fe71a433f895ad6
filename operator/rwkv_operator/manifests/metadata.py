"""Metadata of children: names, labels, the owner reference and the hash of what was asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from rwkv_operator import names
from rwkv_operator.api import spec


def build_metadata(
    dep: spec.Deployment, name: str, component: names.Component | None = None
) -> dict[str, Any]:
    """Name, namespace and labels of a child."""
    return {
        "name": name,
        "namespace": dep.namespace,
        "labels": names.labels(dep.name, component),
    }


def build_owned(dep: spec.Deployment, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The child with its owner, so that it goes when the deployment goes, and its hash."""
    metadata = {**manifest["metadata"], "ownerReferences": [build_owner_reference(dep)]}
    owned = {**manifest, "metadata": metadata}
    annotations = {
        **metadata.get("annotations", {}),
        names.ANNOTATION_APPLIED_HASH: manifest_hash(owned),
    }
    return {**owned, "metadata": {**metadata, "annotations": annotations}}


def build_owner_reference(dep: spec.Deployment) -> dict[str, Any]:
    """The reference by which the garbage collector and the operator know their children."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.DEPLOYMENT_KIND,
        "name": dep.name,
        "uid": dep.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def manifest_hash(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest, whatever the order of its keys."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

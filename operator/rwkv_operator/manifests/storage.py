"""Volumes of an engine pod for its states."""

from __future__ import annotations

from typing import Any, Final

from rwkv_operator import names
from rwkv_operator.api import spec

STATE_VOLUME: Final = "state"


def build_volume_claim_templates(dep: spec.Deployment) -> list[dict[str, Any]]:
    """One claim per engine, where states outlive their pod; else none."""
    store = dep.spec.state.store
    if not isinstance(store, spec.PerPodStore):
        return []
    claim: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": store.size}},
    }
    if store.storage_class_name is not None:
        claim["storageClassName"] = store.storage_class_name
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            # Claim templates can't be changed later, hence only labels that never do.
            "metadata": {"name": STATE_VOLUME, "labels": names.selector(dep.name, "engine")},
            "spec": claim,
        }
    ]


def build_state_volumes(dep: spec.Deployment) -> list[dict[str, Any]]:
    """The pod's own volume for states, where no claim template brings it."""
    store = dep.spec.state.store
    if not isinstance(store, spec.EphemeralStore):
        return []
    return [{"name": STATE_VOLUME, "emptyDir": {"sizeLimit": store.size_limit}}]

"""Where an engine pod finds its saved states: volumes, mounts, memory, and the way to S3."""

from __future__ import annotations

from typing import Any, Final

from rwkv_operator import names
from rwkv_operator.api import spec, state
from rwkv_operator.manifests import engine_config, model

STATE_VOLUME: Final = "state"
S3_KEYS: Final = ("accessKeyId", "secretAccessKey")
"""Entries that the Secret of an S3 store has to have."""


def build_volume_claim_templates(dep: spec.Deployment) -> list[dict[str, Any]]:
    """One claim per engine, where states outlive their pod; else none."""
    store = dep.spec.state.store
    if not isinstance(store, state.PerPodStore):
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
    """The pod's volumes for states, where no claim template brings one."""
    match dep.spec.state.store:
        case state.PerPodStore():
            return []
        case state.EphemeralStore(size_limit):
            return [{"name": STATE_VOLUME, "emptyDir": {"sizeLimit": size_limit}}]
        case state.ClaimStore(claim):
            return [{"name": STATE_VOLUME, "persistentVolumeClaim": {"claimName": claim}}]
        case state.S3Store() as store:
            items = [{"key": key, "path": key} for key in S3_KEYS]
            # Readable by the pod's group only, which is fsGroup.
            source = {
                "secretName": store.credentials_secret,
                "items": items,
                "defaultMode": 0o440,
            }
            return [{"name": names.VOLUME_S3, "secret": source}]


def build_state_mounts(dep: spec.Deployment) -> list[dict[str, Any]]:
    """The engine container's mounts of them; no other container has any."""
    if isinstance(dep.spec.state.store, state.S3Store):
        path = engine_config.S3_CREDENTIALS_PATH
        return [{"name": names.VOLUME_S3, "mountPath": path, "readOnly": True}]
    return [{"name": STATE_VOLUME, "mountPath": engine_config.STATE_PATH}]


def outbound_ports(dep: spec.Deployment) -> list[int]:
    """Ports that an engine needs to reach for its states, besides those of other engines."""
    store = dep.spec.state.store
    if not isinstance(store, state.S3Store):
        return []
    port = model.HTTPS if store.endpoint is None else model.port_of(store.endpoint)
    return [] if port is None else [port]

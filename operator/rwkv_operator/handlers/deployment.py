"""Events of RWKVDeployments: a new one or a new spec is looked at before anything else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kopf

from rwkv_operator import names
from rwkv_operator.handlers.contact import Contact
from rwkv_operator.handlers.queue import WorkQueue


def register(registry: kopf.OperatorRegistry, queue: WorkQueue, contact: Contact) -> None:
    """Feed the queue from a watch of all RWKVDeployments."""

    @kopf.on.event(names.GROUP, names.VERSION, names.DEPLOYMENT_PLURAL, registry=registry)
    async def on_deployment(event: Mapping[str, Any], **_: Any) -> None:
        contact.heard()
        obj = event["object"]
        if wants_look(event.get("type"), obj):
            metadata = obj["metadata"]
            queue.add((metadata["namespace"], metadata["name"]), urgent=True)


def wants_look(kind: str | None, obj: Mapping[str, Any]) -> bool:
    """Whether an event is more than the echo of our own status."""
    if kind != "MODIFIED" or "deletionTimestamp" in obj["metadata"]:
        return True
    seen = (obj.get("status") or {}).get("observedGeneration")
    return bool(seen != obj["metadata"].get("generation"))

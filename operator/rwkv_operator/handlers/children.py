"""Events of children and pods: whatever happens to one, its deployment is looked at.

Only objects with our label are watched, by a selector that the API server applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import kopf

from rwkv_operator import names
from rwkv_operator.handlers.contact import Contact
from rwkv_operator.handlers.queue import COALESCE_SECONDS, Key, WorkQueue

WATCHED: Final = (
    ("apps", "v1", "statefulsets"),
    ("apps", "v1", "deployments"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("", "v1", "serviceaccounts"),
    ("", "v1", "pods"),
    ("policy", "v1", "poddisruptionbudgets"),
    ("networking.k8s.io", "v1", "networkpolicies"),
)
"""Group, version and plural of what is watched."""


def register(
    registry: kopf.OperatorRegistry,
    settings: kopf.OperatorSettings,
    queue: WorkQueue,
    contact: Contact,
) -> None:
    """Feed the queue from a watch of everything that carries our label."""

    async def on_child(event: Mapping[str, Any], **_: Any) -> None:
        contact.heard()
        key = deployment_of(event["object"])
        if key is not None:
            queue.add_later(key, COALESCE_SECONDS)

    for resource in WATCHED:
        settings.watching.label_selectors[resource] = names.LABEL_DEPLOYMENT
        kopf.on.event(*resource, id="-".join(resource), registry=registry)(on_child)


def deployment_of(obj: Mapping[str, Any]) -> Key | None:
    """The deployment that an object belongs to by its label."""
    metadata = obj["metadata"]
    name = (metadata.get("labels") or {}).get(names.LABEL_DEPLOYMENT)
    return (metadata["namespace"], name) if name else None

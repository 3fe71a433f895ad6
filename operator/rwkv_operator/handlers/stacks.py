"""Events of hardware stacks: every deployment that names the stack is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import kopf

from rwkv_operator import names
from rwkv_operator.cluster import gather
from rwkv_operator.cluster.client import Cluster
from rwkv_operator.handlers.contact import Contact
from rwkv_operator.handlers.queue import WorkQueue


def register(
    registry: kopf.OperatorRegistry,
    cluster: Cluster,
    namespace: str | None,
    queue: WorkQueue,
    contact: Contact,
) -> None:
    """Feed the queue from a watch of all stacks.

    Args:
        registry: kopf's registry.
        cluster: to find the deployments that name a stack.
        namespace: the one that is served; None for all.
        queue: where to put them.
        contact: told of every event.
    """

    @kopf.on.event(names.GROUP, names.VERSION, names.STACK_PLURAL, registry=registry)
    async def on_stack(event: Mapping[str, Any], **_: Any) -> None:
        contact.heard()
        name = event["object"]["metadata"]["name"]
        for obj in await asyncio.to_thread(gather.gather_deployments, cluster, namespace):
            if obj["spec"]["hardware"].get("stack") == name:
                queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

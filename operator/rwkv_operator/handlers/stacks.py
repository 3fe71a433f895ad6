"""Events of hardware stacks, and what follows from them and from nodes.

A stack's own status is written here, too: one loop looks after all stacks, so that a hundred
events of a growing cluster lead to one list and not to a hundred.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import kopf

from rwkv_operator import errors, names
from rwkv_operator.cluster import gather
from rwkv_operator.cluster.client import Cluster
from rwkv_operator.cluster.nodes import Nodes
from rwkv_operator.handlers.contact import Contact
from rwkv_operator.handlers.nodes import NodeWatch
from rwkv_operator.handlers.queue import WorkQueue

_log = logging.getLogger(__name__)

BURST_SECONDS: Final = 0.5
"""Nodes come and stacks are applied in bursts."""

REPEAT_SECONDS: Final = 300.0

Keep = Callable[[], None]


class StackWatch:
    """Which specs of stacks are known, so that an echo of our own status isn't news."""

    def __init__(self) -> None:
        """Start without any stack."""
        self._known: dict[str, tuple[str, int]] = {}
        self.changed = asyncio.Event()

    def note(self, kind: str | None, obj: Mapping[str, Any]) -> str | None:
        """Take in an event; the stack's name where its spec is new."""
        metadata = obj["metadata"]
        version = (metadata["uid"], metadata.get("generation", 1))
        before = self._known.pop(metadata["name"], None)
        if kind != "DELETED":
            self._known[metadata["name"]] = version
            if before == version:
                return None
        self.changed.set()
        name: str = metadata["name"]
        return name


def register(
    registry: kopf.OperatorRegistry,
    cluster: Cluster,
    namespace: str | None,
    queue: WorkQueue,
    contact: Contact,
    watch: StackWatch,
) -> None:
    """Feed the queue from a watch of all stacks.

    Args:
        registry: kopf's registry.
        cluster: to find the deployments that name a stack.
        namespace: the one that is served; None for all.
        queue: where to put them.
        contact: told of every event.
        watch: told of every event.
    """

    @kopf.on.event(names.GROUP, names.VERSION, names.STACK_PLURAL, registry=registry)
    async def on_stack(event: Mapping[str, Any], **_: Any) -> None:
        contact.heard()
        name = watch.note(event.get("type"), event["object"])
        if name is None:
            return
        for obj in await asyncio.to_thread(gather.gather_deployments, cluster, namespace):
            if obj["spec"]["hardware"].get("stack") == name:
                queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))


async def follow_nodes(
    watch: NodeWatch,
    stacks: StackWatch,
    nodes: Nodes,
    cluster: Cluster,
    namespace: str | None,
    queue: WorkQueue,
) -> None:
    """Look at every deployment whenever a node fits differently; for ever."""
    while True:
        await watch.changed.wait()
        await asyncio.sleep(BURST_SECONDS)
        watch.changed.clear()
        nodes.forget()
        stacks.changed.set()
        try:
            found = await asyncio.to_thread(gather.gather_deployments, cluster, namespace)
        except errors.ClusterError as error:
            _log.warning("RWKVDeployments can't be listed after a change of nodes: %s", error)
            watch.changed.set()
            continue
        for obj in found:
            queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))


async def keep_stacks(watch: StackWatch, keep: Keep, repeat: float = REPEAT_SECONDS) -> None:
    """Bring the stacks' status up to date whenever one or a node has changed; for ever."""
    while True:
        watch.changed.clear()
        try:
            await asyncio.to_thread(keep)
        except errors.ClusterError as error:
            _log.warning("the status of RWKVHardwareStacks is not up to date: %s", error)
        # Not wait_for: it makes a task, which kopf takes for one of its own and ends too early.
        timer = asyncio.get_running_loop().call_later(repeat, watch.changed.set)
        await watch.changed.wait()
        timer.cancel()
        await asyncio.sleep(BURST_SECONDS)

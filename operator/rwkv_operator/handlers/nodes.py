"""Events of nodes: when one fits differently, deployments and stacks are looked at again.

Nodes tell of themselves all the time; only a change of what decides about engines wakes anybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import kopf

from rwkv_operator.api.node import Node, parse_node
from rwkv_operator.handlers.contact import Contact


class NodeWatch:
    """What is known of the nodes, and whether that has changed. For one event loop."""

    def __init__(self) -> None:
        """Start without any node."""
        self._known: dict[str, Node] = {}
        self.changed = asyncio.Event()

    def note(self, kind: str | None, obj: Mapping[str, Any]) -> None:
        """Take in an event."""
        node = parse_node(obj)
        before = self._known.pop(node.name, None)
        if kind != "DELETED":
            self._known[node.name] = node
        if kind == "DELETED" or before != node:
            self.changed.set()


def register(registry: kopf.OperatorRegistry, watch: NodeWatch, contact: Contact) -> None:
    """Feed the watch from all nodes."""

    @kopf.on.event("", "v1", "nodes", registry=registry)
    async def on_node(event: Mapping[str, Any], **_: Any) -> None:
        contact.heard()
        watch.note(event.get("type"), event["object"])

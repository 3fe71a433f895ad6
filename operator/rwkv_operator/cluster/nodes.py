"""The cluster's nodes, listed once for many passes.

A node is a large object and a cluster has many, so a pass doesn't list them itself: what was read
counts until a watch says that a node has changed, and no longer than a few seconds in any case.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from rwkv_operator.api.node import Node, parse_node
from rwkv_operator.cluster.client import Cluster

MAX_AGE_SECONDS: Final = 20.0


class Nodes:
    """Reads nodes; for several threads."""

    def __init__(
        self, cluster: Cluster, clock: Callable[[], float], max_age: float = MAX_AGE_SECONDS
    ) -> None:
        """Start without any; a monotonic clock tells their age."""
        self._cluster = cluster
        self._clock = clock
        self._max_age = max_age
        self._lock = threading.Lock()
        self._nodes: tuple[Node, ...] = ()
        self._read_at: float | None = None

    def all(self) -> tuple[Node, ...]:
        """Every node, as it was at most a few seconds ago."""
        with self._lock:
            now = self._clock()
            if self._read_at is None or now - self._read_at > self._max_age:
                self._nodes = tuple(parse_node(obj) for obj in self._cluster.find("Node", None))
                self._read_at = now
            return self._nodes

    def forget(self) -> None:
        """A node has changed: read them again for the next pass."""
        with self._lock:
            self._read_at = None

"""How much a router may hold in memory: buffers, connections, and the pod's limit that fits both.

HAProxy keeps the part of a request in which it looks for a session in one buffer, so a buffer is
as long as `maxBodyBytes`. With a buffer for each connection the sum would be gigabytes that are
never used at the same time; so buffers are bounded by themselves (`tune.buffers.limit`), a
request that gets none waits for one, and the limit of the pod is what all of it can add up to:

    memory limit = base + connections x bytes of a connection + buffers x length of a buffer

While a reload lets old streams end, the old process holds no request bodies any more: they are
read within `timeouts.request`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rwkv_operator.api import spec

HEADERS: Final = 128 * 2**10
"""Room in a buffer beside the body: the request's headers, and those that the router adds."""

MAX_CONNECTIONS: Final = 4096
OPS_CONNECTIONS: Final = 64
"""Of them, those that clients can't take: for probes, the operator and metrics."""

CONNECTION: Final = 32 * 2**10
BASE: Final = 96 * 2**20

BUFFERS_BUDGET: Final = 1152 * 2**20
MIN_BUFFERS: Final = 128
"""Below that, a few slow clients could make all others wait."""


@dataclass(frozen=True)
class Sizing:
    """What one router may use.

    Attributes:
        buffer_bytes: length of one buffer.
        buffers: how many of them at a time.
        connections: clients and others at a time.
        client_connections: clients at a time.
        memory_limit_bytes: what all of that adds up to.
    """

    buffer_bytes: int
    buffers: int
    connections: int
    client_connections: int
    memory_limit_bytes: int


def router_sizing(routing: spec.Routing) -> Sizing:
    """Sizes that let every body up to `maxBodyBytes` be read and never exceed the limit."""
    buffer_bytes = routing.max_body_bytes + HEADERS
    buffers = min(MAX_CONNECTIONS, max(MIN_BUFFERS, BUFFERS_BUDGET // buffer_bytes))
    return Sizing(
        buffer_bytes=buffer_bytes,
        buffers=buffers,
        connections=MAX_CONNECTIONS,
        client_connections=MAX_CONNECTIONS - OPS_CONNECTIONS,
        memory_limit_bytes=BASE + MAX_CONNECTIONS * CONNECTION + buffers * buffer_bytes,
    )

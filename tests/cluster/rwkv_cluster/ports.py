"""Free ports for servers of tests, which run beside other tests on the same machine."""

from __future__ import annotations

import contextlib
import random
import socket

# Linux gives connections theirs from 32768 on.
BELOW_EPHEMERAL = (12000, 32000)


def free_port() -> int:
    """A port that nobody listens on now, and that no connection of others takes meanwhile."""
    while True:
        port = random.randrange(*BELOW_EPHEMERAL)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port


def free_ports(count: int) -> list[int]:
    """That many different ones."""
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)

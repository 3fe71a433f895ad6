"""What a store needs now and then: states whose time is over go, and those that stay are counted.

Of engines that share a store, the one with the lowest number that listens does it for all: an
engine listens once it serves. Two that do it at a time do no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from rwkv_server.states import counters
from rwkv_server.states.errors import StateError
from rwkv_server.states.peers import Addresses
from rwkv_server.states.store.states import StateStore

INTERVAL_S = 60.0
CONNECT_S = 2.0

log = logging.getLogger(__name__)


async def listens(url: str) -> bool:
    """Whether something accepts connections there."""
    parts = urlsplit(url)
    opening = asyncio.open_connection(parts.hostname, parts.port)
    try:
        _, writer = await asyncio.wait_for(opening, CONNECT_S)
    except (OSError, asyncio.TimeoutError):
        return False
    writer.close()
    return True


class Keeper:
    """Sweeps in the background."""

    def __init__(
        self,
        store: StateStore,
        addresses: Addresses,
        clock: Callable[[], float],
        is_there: Callable[[str], Awaitable[bool]] = listens,
    ) -> None:
        """Nothing runs yet; `is_there` tells whether an engine serves at a URL."""
        self._store = store
        self._addresses = addresses
        self._clock = clock
        self._is_there = is_there
        self._task: asyncio.Task[None] | None = None
        self._damaged: tuple[str, ...] = ()

    def start(self) -> None:
        """Begin; the first look is at once."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End it, also in the middle of a sweep."""
        # `wait_for` before Python 3.12 loses a cancellation that comes as its call ends.
        while self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=0.1)

    async def look(self) -> None:
        """Sweep once, if that is this engine's business."""
        if self._store.shared and await self._has_senior():
            counters.held.set(0)
            counters.held_bytes.set(0)
            counters.damaged.set(0)
            return
        swept = await self._store.sweep(self._clock())
        counters.held.set(swept.held.states)
        counters.held_bytes.set(swept.held.nbytes)
        counters.expired.inc(swept.expired)
        counters.damaged.set(len(swept.damaged))
        for key in sorted({*swept.damaged}.difference(self._damaged)):
            log.warning("%s of the state store can't be read; its state is in no list", key)
        self._damaged = swept.damaged

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except StateError as error:
                log.warning("the store wasn't swept: %s", error.message)
            except Exception:
                log.exception("the store wasn't swept")
            await asyncio.sleep(INTERVAL_S)

    async def _has_senior(self) -> bool:
        urls = [self._addresses.url_of(ordinal) for ordinal in range(self._addresses.own)]
        return any(await asyncio.gather(*map(self._is_there, urls)))

"""The drain: let the router notice, let every answer finish, write every state, then end.

From its first moment /readyz says 503. Requests that still arrive are served, because the router
learns of it only by its next checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rwkv_server.parent.engine_http import Flushed, FlushFailed, Load
from rwkv_server.parent.status import Status
from rwkv_server.settings import Drain

POLL_S = 0.2

log = logging.getLogger(__name__)


class Drainer:
    """Runs the drain once, however often it is asked for."""

    def __init__(
        self,
        settings: Drain,
        status: Status,
        load: Callable[[], Awaitable[Load | None]],
        flush: Callable[[float], Awaitable[Flushed]],
    ) -> None:
        """Keep what the drain needs.

        Args:
            settings: its bounds.
            status: what it tells and reads.
            load: what the child is doing; None when it can't tell.
            flush: has the child write the states that it writes behind, within so many seconds.
        """
        self._settings = settings
        self._status = status
        self._load = load
        self._flush = flush
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the drain if it hasn't begun."""
        if self._task is None:
            self._status.draining = True
            self._task = asyncio.create_task(self._run(self._status.served))

    async def finish(self) -> None:
        """Begin it if needed and wait for its end."""
        self.start()
        assert self._task is not None
        await self._task

    async def _run(self, served: bool) -> None:
        if served:
            self._status.enter("Draining", "waiting until the router sends no new requests")
            await asyncio.sleep(self._settings.notice_seconds)
            await self._wait_for_answers()
            await self._write_states()
        self._status.drained = True

    async def _wait_for_answers(self) -> None:
        deadline = self._status.elapsed_s + self._settings.shutdown_timeout_seconds
        while not self._status.child_died:
            load = await self._load()
            in_flight = None if load is None else load.in_flight
            if in_flight == 0:
                self._status.enter("Draining", "every answer is complete")
                return
            count = "an unknown number of" if in_flight is None else in_flight
            if self._status.elapsed_s >= deadline:
                log.warning("the drain ran out of time with %s requests in flight", count)
                self._status.enter("Draining", f"ran out of time with {count} requests in flight")
                return
            self._status.enter("Draining", f"waiting for {count} requests in flight")
            await asyncio.sleep(POLL_S)

    async def _write_states(self) -> None:
        if self._status.child_died:
            return
        answers = self._status.progress.message
        self._status.enter("Draining", f"{answers}; writing states to the store")
        try:
            flushed = await self._flush(self._settings.flush_timeout_seconds)
        except FlushFailed as error:
            log.warning("states that were written behind may be lost: %s", error)
            self._status.enter("Draining", f"{answers}; states may be lost: {error}")
            return
        (log.warning if flushed.failed else log.info)("drained: %s", flushed.text())
        self._status.enter("Draining", f"{answers}; {flushed.text()}")

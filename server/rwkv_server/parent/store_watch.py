"""Probe the state store again and again, with a bound on how long an answer is waited for."""

from __future__ import annotations

import asyncio
import logging
import socket

from rwkv_server.metrics import Metrics
from rwkv_server.parent.background import in_thread
from rwkv_server.parent.status import Status
from rwkv_server.preflight.store import StoreReport, place_of, report_store
from rwkv_server.settings import State

INTERVAL_S = 30.0
TIMEOUT_S = 10.0

log = logging.getLogger(__name__)


class StoreWatch:
    """Keeps `status.store` current; never more than one probe at a time, however long it hangs."""

    def __init__(self, state: State, status: Status, metrics: Metrics) -> None:
        """Remember what to probe and where to tell."""
        self._state = state
        self._status = status
        self._metrics = metrics
        self._owner = socket.gethostname()
        self._running: asyncio.Task[StoreReport] | None = None

    async def run(self) -> None:
        """Probe every 30 seconds until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.probe()

    async def probe(self, timeout_s: float = TIMEOUT_S) -> None:
        """Probe once and tell what came out."""
        state, owner = self._state, self._owner
        if self._running is None:
            work = in_thread(lambda: report_store(state, owner))
            self._running = asyncio.create_task(work)
        await asyncio.wait({self._running}, timeout=timeout_s)
        if self._running.done():
            report = self._running.result()
            self._running = None
        else:
            message = f"{place_of(state)} didn't answer a small write within {timeout_s:g} s"
            report = StoreReport(state.store, False, "StoreUnreachable", message)
        self._tell(report)

    def _tell(self, report: StoreReport) -> None:
        if not report.ok:
            self._metrics.store_failures.inc()
            log.warning("state store: %s: %s", report.reason, report.message)
        self._metrics.store_ok.set(report.ok)
        self._status.store = report

"""What engine and router pods say about themselves on their ops ports.

A pod that doesn't answer is unknown, never an error. What it said last counts a few times more, as
long as none of its containers was started anew, so that a slow answer of a busy machine doesn't
turn a serving deployment into an unknown one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

import httpx

from rwkv_operator import names
from rwkv_operator.api import observed
from rwkv_operator.api.pods import Pod

_TIMEOUT: Final = httpx.Timeout(2.0)
_DEADLINE_SECONDS: Final = 5.0
"""For all that is asked of a pod: one that sends a byte now and then never exceeds a timeout."""

_MAX_BYTES: Final = 64 * 2**10
_UNREADABLE: Final = (KeyError, TypeError, ValueError, OverflowError, RecursionError)
_FORGIVEN: Final = 2
"""Missed answers in a row for which the last report still counts."""

Report = TypeVar("Report", observed.EngineReport, observed.FetchReport, observed.RouterReport)


@dataclass(frozen=True)
class Told:
    """Reports by name of the pod; a pod that is unknown is missing.

    Attributes:
        missed: a report is a former one; the pod has to be asked again soon.
    """

    engines: dict[str, observed.EngineReport] = field(default_factory=dict)
    fetches: dict[str, observed.FetchReport] = field(default_factory=dict)
    routers: dict[str, observed.RouterReport] = field(default_factory=dict)
    missed: bool = False


@dataclass(frozen=True)
class _Memory:
    instance: str
    report: Any
    misses: int = 0


def build_http() -> httpx.AsyncClient:
    """The client for pods: short timeouts, no proxy between pods of a cluster."""
    limits = httpx.Limits(max_connections=64, max_keepalive_connections=0)
    headers = {"accept-encoding": "identity"}
    return httpx.AsyncClient(timeout=_TIMEOUT, limits=limits, headers=headers, trust_env=False)


class PodReports:
    """Asks all pods of a deployment at once."""

    def __init__(self, http: httpx.AsyncClient, deadline: float = _DEADLINE_SECONDS) -> None:
        """Ask with an HTTP client, and wait for each pod until the deadline, in seconds."""
        self._http = http
        self._deadline = deadline
        self._memory: dict[tuple[str, str], dict[str, _Memory]] = {}

    async def ask(self, namespace: str, name: str, pods: Iterable[Pod]) -> Told:
        """Reports of a deployment's pods; forgets pods that are no longer there."""
        known = self._memory.get((namespace, name), {})
        alive = [pod for pod in pods if pod.ip and not pod.terminating]
        asked = [pod for pod in alive if pod.failure is None and not pod.fetching]
        engines = [pod for pod in asked if pod.component == "engine"]
        routers = [pod for pod in asked if pod.component == "router"]
        from_engines, from_fetches, from_routers = await asyncio.gather(
            self._ask_all(engines, self._ask_engine, known),
            # A download that failed before may go on; only it can tell.
            self._ask_all([pod for pod in alive if pod.fetching], self._ask_fetch, known),
            self._ask_all(routers, self._ask_router, known),
        )
        remembered = {**from_engines, **from_fetches, **from_routers}
        self._memory[namespace, name] = remembered
        return Told(
            {pod: memory.report for pod, memory in from_engines.items()},
            {pod: memory.report for pod, memory in from_fetches.items()},
            {pod: memory.report for pod, memory in from_routers.items()},
            missed=any(memory.misses for memory in remembered.values()),
        )

    def forget(self, namespace: str, name: str) -> None:
        """Drop what is remembered of a deployment that is gone."""
        self._memory.pop((namespace, name), None)

    async def _ask_all(
        self,
        pods: list[Pod],
        ask: Callable[[str], Awaitable[Report | None]],
        known: dict[str, _Memory],
    ) -> dict[str, _Memory]:
        reports = await asyncio.gather(*(self._in_time(ask(_host(pod))) for pod in pods))
        found: dict[str, _Memory] = {}
        for pod, report in zip(pods, reports, strict=True):
            before = known.get(pod.name)
            if report is not None:
                found[pod.name] = _Memory(pod.instance, report)
            elif before and before.instance == pod.instance and before.misses < _FORGIVEN:
                found[pod.name] = replace(before, misses=before.misses + 1)
        return found

    async def _in_time(self, asking: Awaitable[Report | None]) -> Report | None:
        try:
            return await asyncio.wait_for(asking, self._deadline)
        except asyncio.TimeoutError:
            return None

    async def _ask_engine(self, host: str) -> observed.EngineReport | None:
        base = f"http://{host}:{names.PORT_ENGINE_OPS}"
        progress, report = await asyncio.gather(
            self._json(f"{base}/progress"), self._json(f"{base}/report")
        )
        if progress is None or report is None:
            return None
        try:
            return observed.parse_engine_report(progress, report)
        except _UNREADABLE:
            return None

    async def _ask_fetch(self, host: str) -> observed.FetchReport | None:
        progress = await self._json(f"http://{host}:{names.PORT_FETCH}/progress")
        if progress is None:
            return None
        try:
            return observed.parse_fetch_report(progress)
        except _UNREADABLE:
            return None

    async def _ask_router(self, host: str) -> observed.RouterReport | None:
        agent, ready = await asyncio.gather(
            self._json(f"http://{host}:{names.PORT_AGENT}/status"),
            self._status(f"http://{host}:{names.PORT_ROUTER_OPS}/readyz"),
        )
        if agent is None or ready is None:
            return None
        return observed.parse_router_report(agent, sees_engine=ready == 200)

    async def _json(self, url: str) -> dict[str, Any] | None:
        try:
            value = json.loads(await self._read(url))
        except (httpx.HTTPError, *_UNREADABLE):
            return None
        return value if isinstance(value, dict) else None

    async def _read(self, url: str) -> bytes:
        """A good answer's body, or nothing: also for one that is long, or may be when unpacked."""
        async with self._http.stream("GET", url) as answer:
            if answer.status_code != 200 or "content-encoding" in answer.headers:
                return b""
            body = b""
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > _MAX_BYTES:
                    return b""
            return body

    async def _status(self, url: str) -> int | None:
        try:
            async with self._http.stream("GET", url) as answer:
                return answer.status_code
        except httpx.HTTPError:
            return None


def _host(pod: Pod) -> str:
    address = ipaddress.ip_address(pod.ip or "")
    return f"[{address}]" if address.version == 6 else str(address)

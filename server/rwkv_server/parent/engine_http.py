"""What the parent asks the child over loopback HTTP: is it healthy, and its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import httpx

from rwkv_server import metrics

TIMEOUT_S = 5.0


class Health(Enum):
    """An answer of the child's /health."""

    OK = "ok"
    BROKEN = "broken"  # it answered that its engine is gone
    SILENT = "silent"  # not listening yet, or too busy to answer in time


@dataclass(frozen=True)
class Load:
    """Requests inside the engine, and HTTP requests whose answer isn't complete.

    `in_flight` is None where the child doesn't tell it: that isn't the same as no request.
    """

    running: int
    waiting: int
    in_flight: int | None


def parse_load(text: str) -> Load:
    """Read the counts from the child's metrics; vLLM's count as 0 while it doesn't tell them."""
    in_flight = metrics.sum_samples(text, metrics.IN_FLIGHT)
    return Load(
        int(metrics.sum_samples(text, metrics.RUNNING) or 0),
        int(metrics.sum_samples(text, metrics.WAITING) or 0),
        None if in_flight is None else int(in_flight),
    )


class EngineHttp:
    """A client of the child's HTTP port."""

    def __init__(self, port: int, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Make a client; `transport` replaces the network."""
        self._client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            timeout=TIMEOUT_S,
            trust_env=False,
            transport=transport,
        )

    async def health(self) -> Health:
        """Ask /health."""
        try:
            answer = await self._client.get("/health")
        except httpx.HTTPError:
            return Health.SILENT
        return Health.OK if answer.status_code == 200 else Health.BROKEN

    async def metrics(self) -> str | None:
        """The child's exposition text, or None if it doesn't answer."""
        try:
            answer = await self._client.get("/metrics")
        except httpx.HTTPError:
            return None
        return answer.text if answer.status_code == 200 else None

    async def load(self) -> Load | None:
        """The child's load, or None if it doesn't answer."""
        text = await self.metrics()
        return None if text is None else parse_load(text)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

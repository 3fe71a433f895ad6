"""What the parent asks the child over loopback HTTP: its health, its metrics, its last writes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import httpx
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError
from pydantic.alias_generators import to_camel

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

    Attributes:
        states, state_bytes: saved states in the store and what they take, where the child tells.
    """

    running: int
    waiting: int
    in_flight: int | None
    states: int | None = None
    state_bytes: int | None = None


class Flushed(BaseModel):
    """What became of states that were still on their way to the store.

    Attributes:
        flushed: states that are in it now.
        failed: those that are not and end with the engine.
        only_here: states in it that nothing but this pod's own volume holds.
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel)

    flushed: NonNegativeInt
    failed: NonNegativeInt
    only_here: NonNegativeInt

    def text(self) -> str:
        """One line of it."""
        parts = [f"{self.flushed} states written"]
        if self.failed:
            parts.append(f"{self.failed} LOST, the store took them not")
        if self.only_here:
            parts.append(f"{self.only_here} have no copy outside this pod's volume")
        return ", ".join(parts)


def parse_load(text: str) -> Load:
    """Read the counts from the child's metrics; vLLM's count as 0 while it doesn't tell them."""
    return Load(
        _count(text, metrics.RUNNING) or 0,
        _count(text, metrics.WAITING) or 0,
        _count(text, metrics.IN_FLIGHT),
        _count(text, metrics.STATES),
        _count(text, metrics.STATE_BYTES),
    )


def _count(text: str, name: str) -> int | None:
    found = metrics.sum_samples(text, name)
    return None if found is None else int(found)


class FlushFailed(Exception):
    """What the child had still to write may be lost; the text says why that isn't known."""


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

    async def flush(self, timeout_s: float) -> Flushed:
        """Have the child write what it writes behind; returns when nothing is left to write.

        Raises:
            FlushFailed: it doesn't answer in time, or not as it should.
        """
        try:
            answer = await self._client.post("/internal/flush", timeout=timeout_s)
        except httpx.TimeoutException:
            raise FlushFailed(f"not done within {timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise FlushFailed(f"the engine doesn't answer: {type(error).__name__}") from None
        if answer.status_code != 200:
            raise FlushFailed(f"the engine answered {answer.status_code}")
        try:
            return Flushed.model_validate_json(answer.content)
        except ValidationError:
            raise FlushFailed("the engine's answer isn't one") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

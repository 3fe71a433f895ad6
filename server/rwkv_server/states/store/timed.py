"""A bound on how long the store's backend is waited for. What was begun may still happen later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.store.blobs import Blob, Blobs

_T = TypeVar("_T")


@dataclass(frozen=True)
class TimedBlobs:
    """Another backend, each of whose calls ends within `timeout_s`."""

    inner: Blobs
    timeout_s: float

    async def create(self, key: str, content: bytes) -> None:
        """See `Blobs`."""
        await self._bounded(self.inner.create(key, content), "a write")

    async def get(self, key: str) -> bytes:
        """See `Blobs`."""
        return await self._bounded(self.inner.get(key), "a read")

    async def list(self, prefix: str) -> Sequence[Blob]:
        """See `Blobs`."""
        return await self._bounded(self.inner.list(prefix), "a listing")

    async def delete(self, key: str) -> None:
        """See `Blobs`."""
        await self._bounded(self.inner.delete(key), "a deletion")

    async def clean(self, before: float) -> int:
        """See `Blobs`."""
        return await self._bounded(self.inner.clean(before), "a cleaning")

    async def _bounded(self, call: Awaitable[_T], what: str) -> _T:
        try:
            return await asyncio.wait_for(call, self.timeout_s)
        except (TimeoutError, asyncio.TimeoutError):
            raise StateStoreUnavailable(
                f"the state store didn't answer {what} within {self.timeout_s:g} s",
                retry_after_s=max(1, round(self.timeout_s)),
            ) from None

"""A bound on how long the store's backend is waited for. What was begun may still happen later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.held import Content
from rwkv_server.states.store.blobs import Blob, Blobs, Describe

_T = TypeVar("_T")
# A listing is as many requests as it has thousands of keys.
_LISTING = 6


@dataclass(frozen=True)
class TimedBlobs:
    """Another backend, each of whose calls ends in time, listings in six times as much."""

    inner: Blobs
    timeout_s: float

    async def commit(self, folder: str, data: Content, describe: Describe) -> None:
        """See `Blobs`."""
        await self._bounded(self.inner.commit(folder, data, describe), "a write")

    async def create(self, key: str, content: bytes) -> None:
        """See `Blobs`."""
        await self._bounded(self.inner.create(key, content), "a write")

    async def get(self, key: str) -> bytes:
        """See `Blobs`."""
        return await self._bounded(self.inner.get(key), "a read")

    async def list(self, prefix: str) -> Sequence[Blob]:
        """See `Blobs`."""
        return await self._bounded(self.inner.list(prefix), "a listing", _LISTING)

    async def delete(self, key: str) -> None:
        """See `Blobs`."""
        await self._bounded(self.inner.delete(key), "a deletion")

    async def clean(self, before: float) -> int:
        """See `Blobs`."""
        return await self._bounded(self.inner.clean(before), "a cleaning", _LISTING)

    async def _bounded(self, call: Awaitable[_T], what: str, times: int = 1) -> _T:
        limit = times * self.timeout_s
        # Not asyncio.wait_for: before Python 3.12 it can swallow a cancellation.
        task = asyncio.ensure_future(call)
        task.add_done_callback(_look_at)
        try:
            done, _ = await asyncio.wait({task}, timeout=limit)
        finally:
            task.cancel()  # nothing to one that is done
        if done:
            return task.result()
        raise StateStoreUnavailable(
            f"the state store didn't answer {what} within {limit:g} s",
            retry_after_s=max(1, round(self.timeout_s)),
        )


def _look_at(task: asyncio.Future[_T]) -> None:
    """Errors of calls that were given up are nobody's."""
    if not task.cancelled():
        task.exception()

"""Another try where the network or a server failed for a moment: for S3, not for volumes.

A write whose answer got lost may have happened: when the second try finds the key taken, what is
there decides whose it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.held import Content
from rwkv_server.states.store.blobs import (
    Blob,
    BlobExists,
    Blobs,
    Describe,
    commit_in_turn,
)

_T = TypeVar("_T")


@dataclass(frozen=True)
class RetriedBlobs:
    """A backend whose calls are made again after each of these pauses, if trying again may help."""

    inner: Blobs
    pauses_s: tuple[float, ...]

    async def commit(self, folder: str, data: Content, describe: Describe) -> None:
        """See `Blobs`."""
        await commit_in_turn(self, data, describe)

    async def create(self, key: str, content: bytes) -> None:
        """See `Blobs`."""
        tries = 0

        async def once() -> None:
            nonlocal tries
            tries += 1
            try:
                await self.inner.create(key, content)
            except BlobExists:
                if tries == 1 or await self.inner.get(key) != content:
                    raise

        await self._again(once)

    async def get(self, key: str) -> bytes:
        """See `Blobs`."""
        return await self._again(lambda: self.inner.get(key))

    async def list(self, prefix: str) -> Sequence[Blob]:
        """See `Blobs`."""
        return await self._again(lambda: self.inner.list(prefix))

    async def delete(self, key: str) -> None:
        """See `Blobs`."""
        await self._again(lambda: self.inner.delete(key))

    async def clean(self, before: float) -> int:
        """See `Blobs`."""
        return await self._again(lambda: self.inner.clean(before))

    async def _again(self, call: Callable[[], Awaitable[_T]]) -> _T:
        for pause in self.pauses_s:
            try:
                return await call()
            except StateStoreUnavailable as error:
                if error.retry_after_s is None:
                    raise  # denied, or not there
            await asyncio.sleep(pause)
        return await call()

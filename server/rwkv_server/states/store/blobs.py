"""What a backend of the state store must do: the one seam that all its I/O goes through.

A blob is written whole, under a new key, or not at all. There is no overwriting and no compare-and-
swap, because not every backend has them. No key is a folder of another.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from rwkv_server.states.held import Content


class BlobExists(Exception):
    """The key is taken; the bytes under it may be anybody's."""


class BlobMissing(Exception):
    """There is nothing under the key."""


@dataclass(frozen=True)
class Blob:
    """One entry of a listing.

    Attributes:
        modified: when it was written, in seconds since 1970 by the backend's clock.
    """

    key: str
    size: int
    modified: float


@dataclass(frozen=True)
class Commit:
    """A blob under its key, and the small one that says it's there.

    Attributes:
        data: the key of the first.
        record: the key of the second.
        content: of the second.
    """

    data: str
    record: str
    content: bytes


Describe = Callable[[bytes], Commit]


class Blobs(Protocol):
    """A backend. Every method may raise StateStoreUnavailable or StateStoreFull."""

    async def commit(self, folder: str, data: Content, describe: Describe) -> None:
        """Write two new blobs, so that whoever sees the second finds the first.

        The first may be there: its key tells of its content, so it's of an earlier try.

        Args:
            folder: of both.
            data: the first.
            describe: from the SHA-256 of the first to the rest; on any thread.

        Raises:
            BlobExists: the second's key is taken; the first is there.
        """

    async def create(self, key: str, content: bytes) -> None:
        """Write a new blob; when this returns, it survives what the backend survives.

        After an error the blob may be there or not, whole in any case.

        Raises:
            BlobExists: the key is taken.
        """

    async def get(self, key: str) -> bytes:
        """The whole content.

        Raises:
            BlobMissing: there is none.
        """

    async def list(self, prefix: str) -> Sequence[Blob]:
        """All blobs under a folder (no slash at its end; "" is the root), in order of their keys.

        Blobs that come or go meanwhile may be in it or not.
        """

    async def delete(self, key: str) -> None:
        """Remove a blob for good; one that isn't there is no error."""

    async def clean(self, before: float) -> int:
        """Remove what interrupted writers left before that time, in no listing; says how many."""


async def commit_in_turn(blobs: Blobs, data: Content, describe: Describe) -> None:
    """`Blobs.commit` of a backend that does one thing after the other."""
    content, digest = await asyncio.to_thread(_read, data)
    told = describe(digest)
    with suppress(BlobExists):
        await blobs.create(told.data, content)
    await blobs.create(told.record, told.content)


def _read(data: Content) -> tuple[bytes, bytes]:
    with data.hold() as pieces:
        content = b"".join(pieces)  # which copies nothing, if there is one of bytes
    return content, hashlib.sha256(content).digest()

"""What a backend of the state store must do: the one seam that all its I/O goes through.

A blob is written whole, under a new key, or not at all. There is no overwriting and no compare-and-
swap, because not every backend has them. No key is a folder of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


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


class Blobs(Protocol):
    """A backend. Every method may raise StateStoreUnavailable or StateStoreFull."""

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

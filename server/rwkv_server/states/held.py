"""Bytes that are to be written, and stay what they are until they have been. Nothing runs here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

Piece = bytes | memoryview


class Content(Protocol):
    """What is to be written, wherever it lies."""

    @property
    def nbytes(self) -> int:
        """Its size."""

    def hold(self) -> AbstractContextManager[Sequence[Piece]]:
        """Its pieces, which stay as they are inside the block; on any thread.

        Raises:
            StateError: it's gone, or must not be written.
        """


@dataclass(frozen=True)
class Whole:
    """Content that lies in memory of its own."""

    content: bytes

    @property
    def nbytes(self) -> int:
        """See `Content`."""
        return len(self.content)

    @contextmanager
    def hold(self) -> Iterator[Sequence[Piece]]:
        """See `Content`."""
        yield (self.content,)

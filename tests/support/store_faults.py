"""Backends of the state store that fail, or lose the power, at the n-th thing they are asked."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.held import Content, Piece
from rwkv_server.states.store.blobs import (
    Blob,
    BlobExists,
    BlobMissing,
    Blobs,
    Describe,
    commit_in_turn,
)
from rwkv_server.states.store.disk import File

T = TypeVar("T")
How = Literal["refused", "answer lost", "killed before", "killed after"]
HOWS: tuple[How, ...] = ("refused", "answer lost", "killed before", "killed after")


class Killed(BaseException):
    """The process is gone: nothing after this point is done by it."""


@dataclass
class PaperBlobs:
    """The plainest backend there can be."""

    blobs: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    clock: Callable[[], float] = time.time

    async def commit(self, folder: str, data: Content, describe: Describe) -> None:
        await commit_in_turn(self, data, describe)

    async def create(self, key: str, content: bytes) -> None:
        if key in self.blobs:
            raise BlobExists(key)
        self.blobs[key] = (content, self.clock())

    async def get(self, key: str) -> bytes:
        if key not in self.blobs:
            raise BlobMissing(key)
        return self.blobs[key][0]

    async def list(self, prefix: str) -> Sequence[Blob]:
        start = f"{prefix}/" if prefix else ""
        found = [(key, *blob) for key, blob in self.blobs.items() if key.startswith(start)]
        return [Blob(key, len(content), at) for key, content, at in sorted(found)]

    async def delete(self, key: str) -> None:
        self.blobs.pop(key, None)

    async def clean(self, before: float) -> int:
        return 0


@dataclass
class FaultyBlobs:
    """A backend whose call number `at` goes wrong; None is never."""

    inner: Blobs
    at: int | None = None
    how: How = "refused"
    calls: int = 0
    dead: bool = False

    async def commit(self, folder: str, data: Content, describe: Describe) -> None:
        await commit_in_turn(self, data, describe)

    async def create(self, key: str, content: bytes) -> None:
        await self._call(lambda: self.inner.create(key, content))

    async def get(self, key: str) -> bytes:
        return await self._call(lambda: self.inner.get(key))

    async def list(self, prefix: str) -> Sequence[Blob]:
        return await self._call(lambda: self.inner.list(prefix))

    async def delete(self, key: str) -> None:
        await self._call(lambda: self.inner.delete(key))

    async def clean(self, before: float) -> int:
        return await self._call(lambda: self.inner.clean(before))

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        number, self.calls = self.calls, self.calls + 1
        if self.dead:
            raise Killed
        if number != self.at:
            return await call()
        if self.how in ("answer lost", "killed after"):
            await call()
        if self.how in ("refused", "answer lost"):
            raise StateStoreUnavailable("a fault", retry_after_s=1)
        self.dead = True
        raise Killed


@dataclass
class _Inode:
    content: bytes
    synced: bytes = b""
    modified: float = field(default_factory=time.time)


_Names = dict[Path, "_Inode | None"]  # None is a folder


@dataclass
class PaperDisk:
    """A disk in memory that knows what was synced, and dies at its call number `at`.

    Attributes:
        names: what there is, with None for folders.
        synced: what of it would be found after a loss of power.
    """

    names: _Names
    synced: _Names
    at: int | None = None
    calls: int = 0
    before: Callable[[str], None] = lambda what: None

    @classmethod
    def empty(cls, folder: Path) -> PaperDisk:
        return cls({folder: None}, {folder: None})

    def after_loss(self, kept: Literal["all", "synced", "names"]) -> PaperDisk:
        """The disk at the next start.

        Args:
            kept: all of it (only the process died); what was synced; or also the names that were
                not synced, over contents that were.
        """
        chosen = self.synced if kept == "synced" else self.names
        whole = kept == "all"
        inodes = {
            id(node): _Inode(node.content if whole else node.synced, node.synced, node.modified)
            for node in chosen.values()
            if node is not None
        }
        names = {path: inodes[id(node)] if node else None for path, node in chosen.items()}
        return PaperDisk(names, dict(names))

    def _begin(self, what: str) -> None:
        number, self.calls = self.calls, self.calls + 1
        if self.at is not None and number >= self.at:
            raise Killed
        self.before(what)

    def _file(self, path: Path) -> _Inode:
        node = self.names.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return node

    def _add(self, path: Path, node: _Inode | None) -> None:
        if path in self.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        if path.parent not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
        self.names[path] = node

    def make_folder(self, path: Path) -> None:
        self._begin("make_folder")
        self._add(path, None)

    def write(self, path: Path, *pieces: Piece) -> None:
        content = b"".join(pieces)
        self._begin("write")
        node = _Inode(b"")
        self._add(path, node)
        self._begin("write half")
        node.content = content[: len(content) // 2]
        self._begin("write all")
        node.content = content

    def sync(self, path: Path) -> None:
        self._begin("sync")
        if self.names[path] is not None:
            node = self._file(path)
            node.synced = node.content
            return
        inside = {p: n for p, n in self.names.items() if p.parent == path and p != path}
        for gone in [p for p in self.synced if p.parent == path and p not in inside and p != path]:
            del self.synced[gone]
        self.synced.update(inside)

    def link(self, source: Path, target: Path) -> None:
        self._begin("link")
        self._add(target, self._file(source))

    def read(self, path: Path) -> bytes:
        self._begin("read")
        return self._file(path).content

    def remove(self, path: Path) -> None:
        self._begin("remove")
        self._file(path)
        del self.names[path]

    def files(self, folder: Path) -> Iterator[File]:
        self._begin("files")
        for path, node in sorted(self.names.items()):
            if node is not None and path.is_relative_to(folder):
                yield File(path, len(node.content), node.modified)

"""Blobs as files of a folder on a local or network volume.

A blob is written beside its place under a temporary name, synced, and linked to its own name, which
fails where that is taken; then the folder is synced. A commit is one job of one thread. obstore's
own local store doesn't sync, and leaves the temporary files of a killed process for ever.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from rwkv_server.states.errors import StateError, StateStoreFull, StateStoreUnavailable
from rwkv_server.states.held import Content
from rwkv_server.states.store.blobs import (
    Blob,
    BlobExists,
    BlobMissing,
    Describe,
)
from rwkv_server.states.store.disk import Disk
from rwkv_server.states.store.threads import Threads

_T = TypeVar("_T")
# What a listing passes over: names of keys never begin with a dot.
_TEMPORARY = "."
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_RETRY_AFTER_S = 5


class VolumeBlobs:
    """A folder of a volume."""

    def __init__(
        self,
        volume: Path,
        prefix: str,
        disk: Disk,
        threads: Threads,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """Remember where blobs go; nothing is read or written yet.

        Args:
            volume: a folder that must exist: a missing one is a volume that isn't mounted.
            prefix: folder of all keys in it, made when it is needed; "" for the volume itself.
            disk: the system calls.
            threads: where they are made.
            random_bytes: for names of temporary files.
        """
        self._volume = volume
        self._root = volume / prefix
        self._disk = disk
        self._threads = threads
        self._random_bytes = random_bytes
        self._folders: set[Path] = {volume}

    async def commit(self, folder: str, data: Content, describe: Describe) -> None:
        """See `Blobs`."""
        given_up = threading.Event()
        commit = partial(self._commit, folder, data, describe, given_up)
        try:
            await self._run(commit)
        finally:
            given_up.set()

    async def create(self, key: str, content: bytes) -> None:
        """See `Blobs`."""
        await self._run(lambda: self._create(key, content))

    async def get(self, key: str) -> bytes:
        """See `Blobs`."""
        return await self._run(lambda: self._get(key))

    async def list(self, prefix: str) -> Sequence[Blob]:
        """See `Blobs`."""
        return await self._run(lambda: self._list(prefix))

    async def delete(self, key: str) -> None:
        """See `Blobs`."""
        await self._run(lambda: self._delete(key))

    async def clean(self, before: float) -> int:
        """See `Blobs`."""
        return await self._run(lambda: self._clean(before))

    async def _run(self, work: Callable[[], _T]) -> _T:
        """The result of system calls, made on a thread."""
        return await self._threads.run(lambda: self._translated(work))

    def _create(self, key: str, content: bytes) -> None:
        folder = (self._root / key).parent
        with self._temporary(folder) as file:
            self._disk.write(file, content)
            self._disk.sync(file)
            self._publish(file, key)

    def _commit(
        self, folder: str, data: Content, describe: Describe, given_up: threading.Event
    ) -> None:
        place = self._root / folder
        with self._temporary(place) as first, self._temporary(place) as second:
            digest = hashlib.sha256()
            with data.hold() as pieces:
                self._disk.write(first, *pieces)
                for piece in pieces:
                    digest.update(piece)
            told = describe(digest.digest())
            self._disk.write(second, told.content)
            for file in (first, second):
                self._disk.sync(file)
            _check_wanted(given_up)
            with contextlib.suppress(BlobExists):
                self._publish(first, told.data)
            _check_wanted(given_up)
            self._publish(second, told.record)

    @contextlib.contextmanager
    def _temporary(self, folder: Path) -> Iterator[Path]:
        """A name for a new file; what has it goes afterwards."""
        self._make_folders(folder)
        path = folder / f"{_TEMPORARY}{self._random_bytes(12).hex()}"
        try:
            yield path
        finally:
            self._remove(path)

    def _publish(self, file: Path, key: str) -> None:
        path = self._root / key
        taken = not self._link(file, path)
        # Also when it was taken: whoever made it may not have come as far as this.
        self._disk.sync(path.parent)
        if taken:
            raise BlobExists(key)

    def _make_folders(self, folder: Path) -> None:
        if folder in self._folders:
            return
        self._make_folders(folder.parent)
        try:
            self._disk.make_folder(folder)
        except FileExistsError:
            pass  # perhaps made by another process that has not synced it yet
        self._disk.sync(folder.parent)
        self._folders.add(folder)

    def _get(self, key: str) -> bytes:
        try:
            return self._disk.read(self._root / key)
        except (FileNotFoundError, NotADirectoryError):
            raise BlobMissing(key) from None

    def _list(self, prefix: str) -> Sequence[Blob]:
        found = []
        for file in self._disk.files(self._root / prefix):
            if not file.path.name.startswith(_TEMPORARY):
                key = file.path.relative_to(self._root).as_posix()
                found.append(Blob(key, file.size, file.modified))
        return sorted(found, key=lambda blob: blob.key)

    def _delete(self, key: str) -> None:
        path = self._root / key
        if self._remove(path):
            self._disk.sync(path.parent)

    def _clean(self, before: float) -> int:
        files = self._disk.files(self._root)
        old = [f for f in files if f.path.name.startswith(_TEMPORARY) and f.modified < before]
        return sum(self._remove(file.path) for file in old)

    def _link(self, source: Path, target: Path) -> bool:
        try:
            self._disk.link(source, target)
        except FileExistsError:
            return False
        return True

    def _remove(self, path: Path) -> bool:
        try:
            self._disk.remove(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _translated(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except OSError as error:
            self._folders = {self._volume}
            raise _as_state_error(error, self._volume) from error


def _check_wanted(given_up: threading.Event) -> None:
    """Refuse to commit what nobody waits for: who gave it up was told that it isn't kept."""
    if given_up.is_set():
        raise StateStoreUnavailable("the volume answered when nobody waited any more")


def _as_state_error(error: OSError, volume: Path) -> StateError:
    words = f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, 'unknown')})"
    if error.errno in _FULL:
        return StateStoreFull(
            f"the state store's volume is full: {words}. Delete states, or make the volume larger."
        )
    if error.errno in _DENIED:
        return StateStoreUnavailable(
            f"the state store {volume} can't be used by uid {os.getuid()}: {words}. "
            "Check the volume's owner, fsGroup and read-only flag."
        )
    return StateStoreUnavailable(
        f"the state store {volume} failed: {words}", retry_after_s=_RETRY_AFTER_S
    )

"""The shared-memory file of snapshots: whole slots, each with the number of its present lease.

The API process makes the file and hands out leases; the engine's workers copy to and from the slots
that they were told of. A worker holds a slot's lock while it copies, and the API process gives a
slot to somebody else only when nobody holds it: a worker that is late finds another lease there
and leaves the slot alone. The locks are the kernel's, on the open file, so they end with a process.

Nothing here knows what a snapshot is, or who uses a slot.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"rwkvslot"
_HEADER = struct.Struct("=8sQQ")  # magic, bytes of a slot, number of slots
_TAG = struct.Struct("=Q")
_PAGE = 4096
# Linux' MADV_POPULATE_WRITE, which Python has no name for; asked in parts, as the GIL is held.
_POPULATE, _AT_ONCE = 23, 1 << 20
# struct flock of 64-bit Linux: type, whence, start, length, process.
_FLOCK = struct.Struct("@hhqqi4x")


class SlotError(Exception):
    """The file is missing, is another's, or a lease is over."""


@dataclass(frozen=True)
class Lease:
    """The right to one slot's present content.

    Attributes:
        index: the slot.
        tag: changes each time the slot is given to somebody.
    """

    index: int
    tag: int


def _pages(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE


class SlotFile:
    """One mapping of the file. Each has locks of its own, also within a process."""

    def __init__(self, descriptor: int, nbytes: int, count: int) -> None:
        """Map an open file that has `count` slots of `nbytes`; for `create` and `open`."""
        self.nbytes, self.count = nbytes, count
        self._descriptor = descriptor
        self._first = _pages(_HEADER.size + count * _TAG.size)
        self._stride = _pages(nbytes)
        self._map = mmap.mmap(descriptor, self._first + count * self._stride)
        self._bytes = memoryview(self._map)

    @classmethod
    def create(cls, path: Path, nbytes: int, count: int) -> SlotFile:
        """Make the file anew, with all its memory.

        Raises:
            SlotError: there is no room, or no right to write.
        """
        size = _pages(_HEADER.size + count * _TAG.size) + count * _pages(nbytes)
        descriptor = -1
        try:
            path.unlink(missing_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            # Memory that isn't there would be a fatal signal at the first write, not an error.
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
                path.unlink(missing_ok=True)
            raise SlotError(
                f"{path}: {size} bytes for {count} states can't be had: {error.strerror}; make "
                "/dev/shm larger or hotBytes smaller"
            ) from None
        made = cls(descriptor, nbytes, count)
        _HEADER.pack_into(made._bytes, 0, _MAGIC, nbytes, count)
        return made

    @classmethod
    def open(cls, path: Path, nbytes: int) -> SlotFile:
        """Map a file whose slots have `nbytes`.

        Raises:
            SlotError: there is none, or its slots have another size.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise SlotError(f"{path} can't be opened: {error.strerror}") from None
        try:
            header = os.pread(descriptor, _HEADER.size, 0).ljust(_HEADER.size, b"\0")
            magic, found, count = _HEADER.unpack(header)
            if magic != _MAGIC or found != nbytes:
                raise SlotError(f"{path} has slots of {found} bytes, wanted {nbytes}")
            return cls(descriptor, nbytes, count)
        except BaseException:
            os.close(descriptor)
            raise

    def close(self) -> None:
        """Give the mapping and the locks back."""
        self._bytes.release()
        with contextlib.suppress(BufferError):  # a thread that hangs still has a slot's bytes
            self._map.close()
        os.close(self._descriptor)

    def populate(self) -> None:
        """Map all memory now; else a first write to a slot stops at each of its pages.

        For a thread of its own. Kernels before 5.14 can't: pages are mapped one by one there.
        """
        with contextlib.suppress(OSError, ValueError):  # the latter once it is closed
            for start in range(0, len(self._map), _AT_ONCE):
                self._map.madvise(_POPULATE, start, min(_AT_ONCE, len(self._map) - start))

    def view(self, index: int) -> memoryview:
        """A slot's bytes, writable."""
        start = self._first + index * self._stride
        return self._bytes[start : start + self.nbytes]

    def renew(self, index: int, tag: int) -> bool:
        """Give the slot a new lease; False if somebody still copies."""
        if not _lock(self._descriptor, fcntl.F_WRLCK, index):
            return False
        try:
            _TAG.pack_into(self._bytes, _HEADER.size + index * _TAG.size, tag)
        finally:
            _lock(self._descriptor, fcntl.F_UNLCK, index)
        return True

    @contextlib.contextmanager
    def hold(self, lease: Lease) -> Iterator[memoryview]:
        """The slot's bytes, which stay with this lease inside the block; one block at a time.

        Raises:
            SlotError: there is no such slot, or it belongs to another lease.
        """
        with self._held(self._descriptor, lease) as view:
            yield view

    @contextlib.contextmanager
    def hold_apart(self, lease: Lease) -> Iterator[memoryview]:
        """As `hold`, with a lock of the block's own: many threads can hold what they like."""
        descriptor = os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDWR | os.O_CLOEXEC)
        try:
            with self._held(descriptor, lease) as view:
                yield view
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _held(self, descriptor: int, lease: Lease) -> Iterator[memoryview]:
        if not 0 <= lease.index < self.count:
            raise SlotError(f"slot {lease.index} isn't one of {self.count}")
        if not _lock(descriptor, fcntl.F_RDLCK, lease.index):
            raise SlotError(f"slot {lease.index} is being given to somebody else")
        try:
            (tag,) = _TAG.unpack_from(self._bytes, _HEADER.size + lease.index * _TAG.size)
            if tag != lease.tag:
                raise SlotError(f"slot {lease.index} belongs to somebody else by now")
            with self.view(lease.index) as view:
                yield view
        finally:
            _lock(descriptor, fcntl.F_UNLCK, lease.index)


def _lock(descriptor: int, kind: int, index: int) -> bool:
    wish = _FLOCK.pack(kind, os.SEEK_SET, index, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wish)
    except (BlockingIOError, PermissionError):
        return False
    return True

"""Copies between a block of the cache and a slot: at once on CPUs, in the device's order elsewhere.

`save` starts a copy and returns what ends it, to be called on the sender's thread. Between both the
block may be written again: on CPUs the bytes have left it, and on a device everything that writes
it comes later on the same stream. Never run on a device: what is tested is the same code on tensors
of the host.
"""

from __future__ import annotations

import ctypes
import queue
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from rwkv_server.states.connector.pages import Rows
from rwkv_server.states.slots import Lease, SlotFile

Finish = Callable[[], None]
# Snapshots on their way between a device and the slots; who needs one more waits for the first.
_MOST_STAGED = 8


class Copies(Protocol):
    """How to move snapshots."""

    def load(self, slots: SlotFile, lease: Lease, block: int) -> Finish:
        """Put a slot's bytes into a block before the next computation.

        Raises:
            SlotError: the lease is over.
        """

    def save(self, slots: SlotFile, lease: Lease, block: int) -> Finish:
        """Put a block's bytes of now into a slot, once the result was called.

        Raises:
            SlotError: the lease is over; the result may raise it, too.
        """


class HostCopies:
    """The cache is in this process's memory."""

    def __init__(self, rows: Sequence[Rows], writes_shared: bool) -> None:
        """Note addresses; of rows that all ranks share one rank writes, if `writes_shared`."""
        self._rows = [_Address(row) for row in rows]
        self._own = [_Address(row) for row in rows if writes_shared or not row.shared]

    def load(self, slots: SlotFile, lease: Lease, block: int) -> Finish:
        """At once."""
        with slots.hold(lease) as view:
            slot = _address(view)
            for row in self._rows:
                ctypes.memmove(row.first + block * row.step, slot + row.offset, row.nbytes)
        return _nothing

    def save(self, slots: SlotFile, lease: Lease, block: int) -> Finish:
        """At once."""
        with slots.hold(lease) as view:
            slot = _address(view)
            for row in self._own:
                ctypes.memmove(slot + row.offset, row.first + block * row.step, row.nbytes)
        return _nothing


class _Address:
    def __init__(self, row: Rows) -> None:
        self.first, self.step = row.pages.data_ptr(), row.pages.stride(0)
        self.offset, self.nbytes = row.offset, row.nbytes


def _address(view: memoryview) -> int:
    # The object keeps the view exported, so only its number may live on.
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def _nothing() -> None:
    """Nothing is left to do."""


class StagedCopies:
    """The cache is a device's: bytes go through page-locked memory, in the order of its stream."""

    def __init__(
        self,
        rows: Sequence[Rows],
        writes_shared: bool,
        make_event: Callable[[], Any],
        pinned: bool = True,
    ) -> None:
        """Buffers are made as they are needed.

        Args:
            rows: this rank's.
            writes_shared: whether this rank saves what all ranks have.
            make_event: makes an event of the device.
            pinned: whether buffers are page-locked.
        """
        self._rows = rows
        self._own = [row for row in rows if writes_shared or not row.shared]
        self._make_event, self._pinned = make_event, pinned
        self._end = max(row.offset + row.nbytes for row in rows)
        self._free: queue.SimpleQueue[torch.Tensor] = queue.SimpleQueue()
        self._made = 0

    def load(self, slots: SlotFile, lease: Lease, block: int) -> Finish:
        """The host's part now, the device's before what is enqueued next."""
        buffer = self._take()
        try:
            with slots.hold(lease) as view:
                _move(self._rows, buffer, view, into_slot=False)
        except BaseException:
            self._free.put(buffer)
            raise
        for row in self._rows:
            part = buffer[row.offset : row.offset + row.nbytes]
            row.pages[block].copy_(part, non_blocking=True)
        event = self._record()

        def finish() -> None:
            event.synchronize()
            self._free.put(buffer)

        return finish

    def save(self, slots: SlotFile, lease: Lease, block: int) -> Finish:
        """The device's part after what is enqueued now, the host's when that is done."""
        with slots.hold(lease):
            pass  # a lease that is over costs the device nothing
        buffer = self._take()
        for row in self._own:
            part = buffer[row.offset : row.offset + row.nbytes]
            part.copy_(row.pages[block], non_blocking=True)
        event = self._record()

        def finish() -> None:
            event.synchronize()
            try:
                with slots.hold(lease) as view:
                    _move(self._own, buffer, view, into_slot=True)
            finally:
                self._free.put(buffer)

        return finish

    def _record(self) -> Any:
        event = self._make_event()
        event.record()
        return event

    def _take(self) -> torch.Tensor:
        if self._made < _MOST_STAGED and self._free.empty():
            self._made += 1
            return torch.empty(self._end, dtype=torch.uint8, pin_memory=self._pinned)
        return self._free.get()


def _move(rows: Sequence[Rows], buffer: torch.Tensor, view: memoryview, into_slot: bool) -> None:
    """Between page-locked memory and a slot, each row at the slot's own offset in both."""
    slot, staged = _address(view), buffer.data_ptr()
    for row in rows:
        to, source = (slot, staged) if into_slot else (staged, slot)
        ctypes.memmove(to + row.offset, source + row.offset, row.nbytes)

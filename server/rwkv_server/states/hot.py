"""Snapshots in host memory: who has which slot, and what may be forgotten. API process only.

A slot is free, pinned by somebody, or kept under a key (a ref, or the hash of a prefix) and pinned
by nobody; the last kind goes, the longest unused first, when somebody needs room. What is forgotten
here is in the store, or was never promised. No I/O but the shared-memory file, no engine.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from rwkv_server.states.errors import StateBusy
from rwkv_server.states.layout import StateLayout
from rwkv_server.states.slots import Lease, SlotFile

# A slot can be free while a late worker still copies, and nobody tells when it's done.
_LOOK_AGAIN_S = 0.05
_RETRY_AFTER_S = 1


@dataclass(frozen=True, eq=False)
class Slot:
    """A slot with its present content, as long as it's pinned.

    Attributes:
        lease: what a `Transfer` names.
        view: the bytes, in the order of the layout.
    """

    lease: Lease
    view: memoryview

    @property
    def index(self) -> int:
        """Which slot."""
        return self.lease.index


@dataclass(frozen=True)
class HotUse:
    """How many slots are what."""

    free: int
    kept: int
    pinned: int


class HotTier:
    """All slots of this pod."""

    def __init__(self, path: Path, layout: StateLayout, slots: int) -> None:
        """Make the file.

        Raises:
            SlotError: there is no room for it.
        """
        self._file = SlotFile.create(path, layout.nbytes, slots)
        self._tags = itertools.count(1)
        self._free: deque[int] = deque(range(slots))
        self._pins: dict[int, int] = {}
        self._slots: dict[int, Slot] = {}  # present content, pinned or kept
        self._keys: dict[int, set[str]] = {}
        self._by_key: dict[str, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # kept and unpinned, oldest first
        self._waiting: deque[tuple[int, asyncio.Future[list[Slot]]]] = deque()

    @property
    def count(self) -> int:
        """Slots in all."""
        return self._file.count

    @property
    def use(self) -> HotUse:
        """Slots that are free, kept for later and in use."""
        return HotUse(len(self._free), len(self._idle), len(self._pins))

    def close(self) -> None:
        """Give the memory back, once no view of it is in use."""
        for slot in self._slots.values():
            slot.view.release()
        self._file.close()

    def hold(self, slot: Slot) -> AbstractContextManager[memoryview]:
        """The slot's bytes, which nobody else is given inside the block, even once it's unpinned.

        For a thread that nobody may wait for to the end.

        Raises:
            SlotError: it was given to somebody already.
        """
        return self._file.hold_apart(slot.lease)

    async def acquire(self, count: int, timeout_s: float) -> list[Slot]:
        """Pin `count` slots of no particular content, all or none; first come, first served.

        Raises:
            StateBusy: there weren't as many within the time.
        """
        if count > self.count:
            raise StateBusy(
                f"a request needs memory for {count} states at once, and hotBytes has room for "
                f"{self.count}: make it larger"
            )
        future: asyncio.Future[list[Slot]] = asyncio.get_running_loop().create_future()
        waiter = (count, future)
        self._waiting.append(waiter)
        self._serve()
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            while not future.done():
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0:
                    raise StateBusy(
                        f"memory for {count} more states wasn't free within {timeout_s:g} s: try "
                        "again later, or make hotBytes larger",
                        retry_after_s=_RETRY_AFTER_S,
                    )
                await asyncio.wait({future}, timeout=min(left, _LOOK_AGAIN_S))
                self._serve()
        except BaseException:
            self._give_up(waiter)
            raise
        return future.result()

    def keep(self, key: str, slot: Slot) -> None:
        """Remember the slot's content under `key`, and give this pin back.

        A slot can have several keys. The content of a key never changes: a key that there is
        already stays with its slot, and this one is released.
        """
        self._check(slot)
        if self._by_key.setdefault(key, slot.index) == slot.index:
            self._keys.setdefault(slot.index, set()).add(key)
        self.unpin(slot)

    def pin(self, key: str) -> Slot | None:
        """Whoever asks has the content of `key` until `unpin`; None if it isn't here."""
        index = self._by_key.get(key)
        if index is None:
            return None
        self._idle.pop(index, None)
        self._pins[index] = self._pins.get(index, 0) + 1
        return self._slots[index]

    def has(self, key: str) -> bool:
        """Whether the content of `key` is here."""
        return key in self._by_key

    def is_pinned(self, key: str) -> bool:
        """Whether somebody uses the content of `key` now."""
        return self._pins.get(self._by_key.get(key, -1), 0) > 0

    def unpin(self, slot: Slot) -> None:
        """Give one pin back; a slot without key or pin is free."""
        self._check(slot)
        self._pins[slot.index] -= 1
        self._settle(slot.index)

    def release(self, slot: Slot) -> None:
        """Give one pin back of a slot whose content is void, and forget its keys."""
        self._check(slot)
        self._forget(slot.index)
        self.unpin(slot)

    def drop(self, key: str) -> None:
        """Forget a key; who has pinned its slot keeps it."""
        index = self._by_key.pop(key, None)
        if index is not None:
            self._keys[index].discard(key)
            self._settle(index)

    def demote(self, key: str) -> None:
        """Let the content of `key` be the first to go; using it again undoes that."""
        index = self._by_key.get(key)
        if index is not None and index in self._idle:
            self._idle.move_to_end(index, last=False)

    def drop_all(self, prefix: str) -> None:
        """Forget all keys that begin so."""
        for key in [key for key in self._by_key if key.startswith(prefix)]:
            self.drop(key)

    def _check(self, slot: Slot) -> None:
        if self._slots.get(slot.index) is not slot or not self._pins.get(slot.index):
            raise ValueError(f"slot {slot.index} isn't pinned by this lease any more")

    def _settle(self, index: int) -> None:
        """Put a slot that may have lost its last pin or key where it belongs."""
        if self._pins.get(index, 0) > 0:
            return
        self._pins.pop(index, None)
        self._idle.pop(index, None)
        if self._keys.get(index):
            self._idle[index] = None
        else:
            self._vacate(index)
        self._serve()

    def _forget(self, index: int) -> None:
        for key in self._keys.pop(index, ()):
            del self._by_key[key]

    def _vacate(self, index: int) -> None:
        self._forget(index)
        del self._slots[index]
        # First to go out again: all processes have its pages mapped, and its bytes in the cache.
        self._free.appendleft(index)

    def _serve(self) -> None:
        """Give slots to those who wait, in their order."""
        while self._waiting:
            count, future = self._waiting[0]
            if not future.done():
                taken = self._take(count)
                if taken is None:
                    return
                future.set_result(taken)
            self._waiting.popleft()

    def _take(self, count: int) -> list[Slot] | None:
        if count > len(self._free) + len(self._idle):
            return None
        renewed: list[Lease] = []
        for index in self._candidates():
            lease = Lease(index, next(self._tags))
            if self._file.renew(index, lease.tag):
                renewed.append(lease)
            if len(renewed) == count:
                break
        else:
            return None
        slots = [Slot(lease, self._file.view(lease.index)) for lease in renewed]
        for slot in slots:
            self._free.remove(slot.index)
            self._slots[slot.index], self._pins[slot.index] = slot, 1
        return slots

    def _candidates(self) -> Iterator[int]:
        """Free slots, some of which may be held, then the longest unused, which are forgotten."""
        yield from tuple(self._free)
        while self._idle:
            index, _ = self._idle.popitem(last=False)
            self._vacate(index)
            yield index

    def _give_up(self, waiter: tuple[int, asyncio.Future[list[Slot]]]) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)
        future = waiter[1]
        if future.done() and not future.cancelled():
            for slot in future.result():
                self.release(slot)
        future.cancel()
        self._serve()

"""Snapshots of prefixes in the store, written behind: they outlive the engine's memory.

A snapshot's name there is made from the hash of its tokens, so another engine, or the same one
after a restart, finds it by a prompt alone: it asks for the places in the prompt where a reply
began before. Like every state it belongs to its tenant, is counted, listed and expires; half of
what a tenant may hold stays for states that were asked for. Nobody waits for the writing; what
isn't written when memory is needed was never promised.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rwkv_server.states import content, counters, refs
from rwkv_server.states.errors import (
    StateError,
    StateExists,
    StateExpired,
    StateNotFound,
    StateStoreUnavailable,
)
from rwkv_server.states.hot import HotTier, Slot
from rwkv_server.states.layout import StateLayout
from rwkv_server.states.loading import fill
from rwkv_server.states.patience import Patience
from rwkv_server.states.ports import Store
from rwkv_server.states.prefixes import Prefixes, hot_key
from rwkv_server.states.record import Record
from rwkv_server.states.reuse import Prefix
from rwkv_server.states.turn import Identity

# Snapshots that wait to be written; the oldest is dropped for one more.
MOST_WAITING = 64
# Of what a tenant may hold, how much snapshots that nobody asked for may fill.
SHARE = 0.5
# Tokens that tell where a reply begins, and how many such places are asked for.
MARK, PLACES = 4, 2

log = logging.getLogger(__name__)


class Deleting(Store, Protocol):
    """A store that forgets."""

    async def delete(self, tenant: str, ref: str, /) -> None:
        """One state."""


@dataclass(frozen=True)
class Shelf:
    """Where snapshots go to and come from."""

    store: Deleting
    hot: HotTier
    layout: StateLayout


class WriteBehind:
    """The queue of snapshots to write, and the way back.

    Attributes:
        written, failed: snapshots so far.
    """

    def __init__(
        self, shelf: Shelf, prefixes: Prefixes, identity: Identity, clock: Callable[[], float]
    ) -> None:
        """Take the parts; `clock` is in seconds since 1970."""
        self._shelf, self._prefixes, self._identity = shelf, prefixes, identity
        self._clock = clock
        self._waiting: OrderedDict[str, tuple[str, Prefix, Prefix | None]] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._patience, self._writing = Patience(), asyncio.Lock()
        self._erasures = 0
        self.written = self.failed = 0
        prefixes.on_keep = self.add

    def add(self, tenant: str, prefix: Prefix, older: Prefix | None) -> None:
        """Have a snapshot written, and one that it makes useless removed."""
        self._waiting[prefix.key] = (tenant, prefix, older)
        while len(self._waiting) > MOST_WAITING:
            self._waiting.popitem(last=False)
            self.failed += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all())

    async def flush(self) -> int:
        """Wait until nothing is left to write; says how many were written since now."""
        before = self.written
        if self._task is not None:
            await self._task
        return self.written - before

    async def forget(self, tenant: str) -> None:
        """Write none of a tenant's any more, nor bring any to memory.

        One that is being written is there after this.
        """
        self._erasures += 1
        for key in [key for key, (whose, *_) in self._waiting.items() if whose == tenant]:
            del self._waiting[key]
        async with self._writing:
            pass

    async def close(self) -> None:
        """Stop reading and writing."""
        await self._patience.close()
        # A cancellation can get lost, see `keeper`.
        while self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=0.1)

    async def fetch(self, tenant: str, tokens: Sequence[int]) -> None:
        """Bring the longest stored snapshot of this prompt's beginning to memory, if it helps.

        What comes too late for this prompt is there for the chat's next.
        """
        with contextlib.suppress(StateStoreUnavailable):
            await self._patience.ask(lambda: self._fetch(tenant, tokens))

    async def _fetch(self, tenant: str, tokens: Sequence[int]) -> None:
        known, erasures = self._prefixes.longest(tenant, tokens), self._erasures
        for length in reply_places(tokens, PLACES):
            if length <= known:
                return
            prefix = self._prefixes.name(tenant, tokens[:length])
            try:
                record = await self._shelf.store.get(tenant, self._ref(prefix))
                slot = await self._load(record)
            except StateStoreUnavailable:
                raise
            except StateError:
                continue
            if self._erasures != erasures:
                self._shelf.hot.release(slot)  # it may be of what was erased meanwhile
                return
            counters.prefixes.labels("durable").inc()
            self._prefixes.adopt(tenant, prefix, slot)
            return

    async def _load(self, record: Record) -> Slot:
        file = await self._shelf.store.content(record)
        (slot,) = await self._shelf.hot.acquire(1, 0)
        try:
            await fill(self._shelf.layout, file, slot)
        except BaseException:
            self._shelf.hot.release(slot)
            raise
        return slot

    async def _write_all(self) -> None:
        while self._waiting:
            async with self._writing:
                if self._waiting:
                    _, next_one = self._waiting.popitem(last=False)
                    await self._replace(*next_one)

    async def _replace(self, tenant: str, prefix: Prefix, older: Prefix | None) -> None:
        """Write one, then remove the one that it makes useless."""
        try:
            if not await self._write(tenant, prefix):
                return
            self.written += 1
            if older is not None:
                await self._shelf.store.delete(tenant, self._ref(older))
        except (StateExists, StateNotFound, StateExpired):
            pass
        except StateError as error:
            self.failed += 1
            log.warning("a prompt's snapshot isn't kept: %s", error.message)

    async def _write(self, tenant: str, prefix: Prefix) -> bool:
        quota, nbytes = self._shelf.store.quota, self._shelf.layout.nbytes
        if not await quota.has_room(tenant, nbytes, SHARE):
            return False
        slot = self._shelf.hot.pin(hot_key(prefix))
        if slot is None:
            return False
        try:
            file = await asyncio.to_thread(_file_of, self._shelf.layout, slot)
        finally:
            self._shelf.hot.unpin(slot)
        await self._shelf.store.put(self._record(tenant, prefix), file)
        return True

    def _ref(self, prefix: Prefix) -> str:
        """The same on all engines that share the store."""
        store = self._shelf.store
        home = refs.Home(0 if store.shared else self._identity.ordinal, store.epoch)
        seed = bytes.fromhex(prefix.key)
        return refs.make_ref(home, lambda size: hashlib.blake2b(seed, digest_size=size).digest())

    def _record(self, tenant: str, prefix: Prefix) -> Record:
        now, ttl = self._clock(), self._identity.default_ttl_s
        return Record(
            ref=self._ref(prefix),
            parent=None,
            tenant=tenant,
            session=None,
            fingerprint=self._identity.fingerprint,
            nbytes=0,
            sha256="",
            consumed_tokens=prefix.length,
            pending=(),
            finish_reason="prompt",
            created_at=now,
            expires_at=None if ttl is None else now + ttl,
            epoch=self._shelf.store.epoch,
        )


def _file_of(layout: StateLayout, slot: Slot) -> bytes:
    content.check_finite(layout, slot.view)
    return content.to_safetensors(layout, slot.view, {})


def reply_places(tokens: Sequence[int], most: int) -> list[int]:
    """Lengths of the beginnings of a prompt that end as it does, the longest first."""
    mark, found = list(tokens[-MARK:]), []
    for length in range(len(tokens) - 1, MARK - 1, -1):
        if tokens[length - 1] == mark[-1] and list(tokens[length - MARK : length]) == mark:
            found.append(length)
            if len(found) == most:
                break
    return found

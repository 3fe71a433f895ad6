"""Snapshots that turns go on from, brought into a slot: from memory, the store or a peer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from rwkv_server.states import content, refs
from rwkv_server.states.errors import (
    StateExists,
    StateNeedsSharedStore,
    StateNotFound,
)
from rwkv_server.states.hot import HotTier, Slot
from rwkv_server.states.layout import StateLayout
from rwkv_server.states.ports import Peers, Store
from rwkv_server.states.record import Record

Source = Literal["hot", "durable", "peer", "none"]


def hot_key(record: Record) -> str:
    """Under which name a state's snapshot lies in memory.

    A client's name can come back with another state, which another engine may have saved; so the
    content is part of it.
    """
    return f"{hot_prefix(record.tenant, record.ref)}{record.sha256}"


def hot_prefix(tenant: str, ref: str) -> str:
    """What the keys of all states begin with that have had this name."""
    return f"{tenant}/{ref}@"


@dataclass(frozen=True)
class Loaded:
    """A pinned slot with a snapshot, and where it came from."""

    slot: Slot
    source: Source


class Loader:
    """Finds records and loads their snapshots, each once however many ask."""

    def __init__(
        self, store: Store, hot: HotTier, layout: StateLayout, ordinal: int, peers: Peers | None
    ) -> None:
        """Take what it loads from and to; `ordinal` is this engine's."""
        self._store, self._hot, self._layout = store, hot, layout
        self._ordinal, self._peers = ordinal, peers
        self._loading: dict[str, asyncio.Lock] = {}

    async def record(self, tenant: str, ref: str) -> Record:
        """A state's record, wherever it is.

        Raises:
            StateNotFound, StateExpired, StateLost, StateStoreUnavailable
        """
        peers = self._peers_of(ref)
        if peers is None:
            return await self._store.get(tenant, ref)
        return await peers.record(tenant, ref)

    def find(self, record: Record) -> Slot | None:
        """The record's snapshot if it is in memory, pinned."""
        return self._hot.pin(hot_key(record))

    def touch(self, record: Record) -> None:
        """Let others go first when memory is needed."""
        slot = self.find(record)
        if slot is not None:
            self._hot.unpin(slot)

    async def load(self, record: Record, room: Slot) -> Loaded:
        """The record's snapshot in a slot, pinned.

        Args:
            record: what to load.
            room: a pinned slot for it, which stays the caller's if this fails.

        Raises:
            StateCorrupt, StateIncompatible, StateNotFound, StateStoreUnavailable
        """
        key = hot_key(record)
        lock = self._loading.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                slot = self._hot.pin(key)
                if slot is None:
                    return await self._fetch(record, key, room)
            self._hot.release(room)
            return Loaded(slot, "hot")
        finally:
            if not lock.locked():
                self._loading.pop(key, None)

    async def _fetch(self, record: Record, key: str, room: Slot) -> Loaded:
        peers = self._peers_of(record.ref)
        if peers is None:
            file = await self._store.content(record)
        else:
            file = await peers.content(record.tenant, record)
        await fill(self._layout, file, room)
        self._hot.keep(key, room)
        slot = self._hot.pin(key)
        if slot is None:
            raise StateNotFound(f"state {record.ref} was deleted meanwhile")
        return Loaded(slot, "durable" if peers is None else "peer")

    def _peers_of(self, ref: str) -> Peers | None:
        """Who to ask for a ref that another engine made in its own store."""
        home = refs.parse_home(ref)
        if self._store.shared or home is None or home.ordinal == self._ordinal:
            return None
        return self._peers


async def fill(layout: StateLayout, file: bytes, slot: Slot) -> None:
    """Put a file's tensors into a slot.

    A thread can't be stopped: who is cancelled, however often, waits for it, and then gives the
    slot back.

    Raises:
        StateCorrupt, StateIncompatible
    """
    loop = asyncio.get_running_loop()
    copy = loop.run_in_executor(None, content.from_safetensors, layout, file, slot.view)
    cancelled = None
    while not copy.done():
        try:
            await asyncio.wait({copy})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        copy.exception()  # nobody's; asyncio would log it
        raise cancelled
    copy.result()


async def check_name(store: Store, tenant: str, name: str) -> None:
    """Refuse a name of the client's that can't be used.

    Raises:
        StateNeedsSharedStore, StateExists
    """
    if not store.shared:
        raise StateNeedsSharedStore(
            f"{name!r} is a name of yours, and each engine has a store of its own: save without a "
            "name, or set spec.state.store to persistentVolumeClaim or s3",
            param="state.save",
        )
    try:
        await store.check_free(tenant, name)
    except StateExists as error:
        raise StateExists(error.message, param="state.save") from None

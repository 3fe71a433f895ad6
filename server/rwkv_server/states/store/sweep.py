"""What goes by itself: states whose time is over, what interrupted writers left, old logs.

Nothing goes that a writer may still be committing: leftovers only after an hour, while a write
gives up after seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from rwkv_server.states.errors import SessionConflict, StateCorrupt, StateNotFound
from rwkv_server.states.record import Record
from rwkv_server.states.store import layout, listing
from rwkv_server.states.store.blobs import Blob, BlobMissing, Blobs
from rwkv_server.states.store.forget import Forgetting
from rwkv_server.states.store.heads import Heads
from rwkv_server.states.store.layout import StateKey
from rwkv_server.states.store.quota import Usage
from rwkv_server.states.store.records import Records, gathered

# A touch that began in time may come this much later, and counts.
GRACE_S = 120.0
LEFTOVER_S = 3600.0
# An erasure that takes longer was interrupted.
INTERRUPTED_S = 300.0
# How long a 410 says that a state has expired, before it becomes a 404.
EXPIRED_S = 7 * 86400.0
# A session whose state is gone keeps its name that long.
SESSION_S = 7 * 86400.0


@dataclass(frozen=True)
class Swept:
    """What a sweep found and did.

    Attributes:
        held: what is stored now, of all tenants.
        expired: states that went.
        leftovers: files that belonged to nothing.
        damaged: keys of records that can't be read; they stay until somebody deletes them.
    """

    held: Usage
    expired: int
    leftovers: int
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Known:
    """Of a record, what doesn't change: read once."""

    stamp: str
    ref: str
    tenant: str
    expires_at: float | None


@dataclass
class _Seen:
    """What a sweep has come across so far."""

    known: dict[tuple[str, float], _Known] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)


class Sweeper:
    """Looks at everything, and remembers the records it has read."""

    def __init__(
        self,
        blobs: Blobs,
        records: Records,
        heads: Heads,
        forgetting: Forgetting,
        writing: Collection[str],
        lies_elsewhere: Callable[[str], bool],
    ) -> None:
        """Nothing is read yet.

        Args:
            blobs: the backend, as the next three have it.
            records: of the states.
            heads: of the sessions.
            forgetting: deletions that may have been interrupted.
            writing: keys that this process is committing.
            lies_elsewhere: whether a ref's state is in a store that isn't looked at here.
        """
        self._blobs = blobs
        self._records = records
        self._heads = heads
        self._forgetting = forgetting
        self._writing = writing
        self._lies_elsewhere = lies_elsewhere
        self._known: dict[tuple[str, float], _Known] = {}

    async def sweep(self, now: float) -> Swept:
        """Look at everything once."""
        await self._forgetting.go_on(now - INTERRUPTED_S)
        leftovers = await self._blobs.clean(now - LEFTOVER_S)
        tenants: dict[str, list[Blob]] = {}
        for blob in await self._blobs.list(""):
            tenants.setdefault(blob.key.partition("/")[0], []).append(blob)
        states = nbytes = expired = 0
        seen = _Seen()
        for blobs in tenants.values():
            nbytes += sum(blob.size for blob in blobs)
            entries = listing.entries(blobs)
            done = await gathered([self._sweep_entry(entry, now, seen) for entry in entries])
            gone = sum(went for went, _ in done)
            expired += gone
            leftovers += sum(dropped for _, dropped in done)
            states += sum(entry.record is not None for entry in entries) - gone
            await self._sweep_logs(blobs, now)
        self._known = seen.known
        return Swept(Usage(states, nbytes), expired, leftovers, tuple(sorted(seen.damaged)))

    async def _sweep_entry(self, entry: listing.Entry, now: float, seen: _Seen) -> tuple[bool, int]:
        try:
            record = await self._known_record(entry)
        except StateCorrupt:
            seen.damaged += [] if entry.record is None else [entry.record.key]
            return False, 0  # it and what it may refer to stay, for somebody to look at
        if record is None and entry.record is not None:
            return False, 0  # it went meanwhile
        if record is not None and await self._expire(entry, record, now):
            return True, 0
        if record is not None and entry.record is not None:
            seen.known[entry.record.key, entry.record.modified] = record
        useless = [
            blob.key
            for key, blob in entry.others
            if blob.key not in self._writing and _is_useless(key, blob, entry, record, now)
        ]
        await gathered([self._blobs.delete(key) for key in useless])
        return False, len(useless)

    async def _known_record(self, entry: listing.Entry) -> _Known | None:
        if entry.record is None:
            return None
        known = self._known.get((entry.record.key, entry.record.modified))
        if known is not None and entry.expiry(known.stamp) is None:
            return known
        record = await self._records.of_entry(entry)
        if record is None:
            return None
        return _Known(layout.stamp(record), record.ref, record.tenant, record.expires_at)

    async def _expire(self, entry: listing.Entry, known: _Known, now: float) -> bool:
        if known.expires_at is None or now < known.expires_at + GRACE_S:
            return False
        try:
            record: Record = await self._records.effective(known.tenant, known.ref)
        except (StateNotFound, StateCorrupt):
            return False
        if not record.has_expired(now - GRACE_S):
            return False  # touched meanwhile
        await self._records.remove(record, expired=True)
        return True

    async def _sweep_logs(self, blobs: Iterable[Blob], now: float) -> None:
        logs: dict[str, list[Blob]] = {}
        for blob in blobs:
            folder, _, _ = blob.key.rpartition("/")
            if layout.is_log(folder):
                logs.setdefault(folder, []).append(blob)
        for folder, log in logs.items():
            await self._heads.drop_old(folder, [blob.key for blob in log])
            if max(blob.modified for blob in log) < now - SESSION_S:
                await self._sweep_old_log(folder, log, now)

    async def _sweep_old_log(self, folder: str, log: list[Blob], now: float) -> None:
        states = layout.states_beside(folder)

        async def is_there(ref: str) -> bool:
            if self._lies_elsewhere(ref):
                return True
            try:  # the listing is older than the head may be
                await self._blobs.get(f"{states}/{layout.encode(ref)}.json")
            except BlobMissing:
                return False
            return True

        try:
            if await self._heads.drop_forgotten(folder, [blob.key for blob in log]):
                return
            await self._heads.forget_dead(folder, is_there, now + LEFTOVER_S)
        except (SessionConflict, StateCorrupt):
            pass  # it lives, or nobody can tell


def _is_useless(
    key: StateKey, blob: Blob, entry: listing.Entry, known: _Known | None, now: float
) -> bool:
    old = blob.modified < now - LEFTOVER_S
    if key.part == "expired":
        return known is not None or blob.modified < now - EXPIRED_S
    if key.part == "document":
        return known is None and old
    if known is None or key.stamp != known.stamp:
        return old
    newest = entry.expiry(known.stamp)
    return key.part == "expiry" and blob != newest and blob.modified < now - GRACE_S

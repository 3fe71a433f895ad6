"""The durable store of one engine: records and snapshots, under names that are never used twice.

A state is there from the moment its record is: the snapshot is written before it, and removed after
it. An interruption leaves a snapshot without a record, which nobody sees and `sweep` removes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

from rwkv_server.states import refs
from rwkv_server.states.errors import (
    StateCorrupt,
    StateExpired,
    StateLost,
    StateNotFound,
)
from rwkv_server.states.held import Content, Whole
from rwkv_server.states.record import Record
from rwkv_server.states.store import damaged, layout, pages
from rwkv_server.states.store.blobs import BlobMissing, Blobs
from rwkv_server.states.store.epoch import read_epoch
from rwkv_server.states.store.forget import Forgetting
from rwkv_server.states.store.heads import Claim, Head, Heads
from rwkv_server.states.store.place import Place
from rwkv_server.states.store.quota import Quota, Usage
from rwkv_server.states.store.records import Records
from rwkv_server.states.store.sweep import Sweeper, Swept
from rwkv_server.states.store.writing import Writer, taken


class StateStore:
    """All tenants' states. Every method may raise StateStoreUnavailable."""

    def __init__(
        self,
        blobs: Blobs,
        place: Place,
        clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """Nothing is read or written yet.

        Args:
            blobs: the backend, below `<prefix>/<namespace>/<name>`.
            place: which store it is.
            clock: seconds since 1970.
            random_bytes: such as `secrets.token_bytes`.
        """
        self.kind = place.kind
        self.shared = place.shared
        self.blobs = blobs
        self.records = Records(blobs)
        self.quota = Quota(blobs, clock, place.max_bytes_per_tenant)
        self.heads = Heads(blobs, place.ordinal, clock, random_bytes)
        self._forgetting = Forgetting(blobs, self.records, self.heads, clock)
        self._writer = Writer(blobs, self.records)
        self._sweeper = Sweeper(
            blobs,
            self.records,
            self.heads,
            self._forgetting,
            self._writer.under_way,
            place.lies_elsewhere,
        )
        self._place = place
        self._clock = clock
        self._random_bytes = random_bytes
        self._epoch: str | None = None

    async def open(self) -> None:
        """Find the store's epoch, or make it, and finish interrupted deletions.

        Costs nothing once it is open.
        """
        if self._epoch is None:
            epoch = await read_epoch(self.blobs, self._random_bytes)
            await self._forgetting.go_on()
            self._epoch = epoch

    @property
    def epoch(self) -> str:
        """The store's name for itself, 8 characters; only once it is open."""
        if self._epoch is None:
            raise RuntimeError("the state store isn't open")
        return self._epoch

    async def put(self, record: Record, content: bytes | Content) -> Record:
        """Write a snapshot and commit its record; both survive what the store survives.

        The same call again, after an error, succeeds if the first one did in truth.

        Returns:
            The record as committed: with the snapshot's size and digest and the store's epoch.

        Raises:
            StateExists: the name is taken.
            StateQuota: the tenant holds too much.
            StateStoreFull: the store does.
        """
        data = Whole(content) if isinstance(content, bytes) else content
        await self.open()
        async with self.quota.room(record.tenant, data.nbytes):
            return await self._writer.commit(record, data, self.epoch)

    async def check_free(self, tenant: str, ref: str) -> None:
        """Refuse a name that a state has, also one that can't be read, or that no sweep took yet.

        Raises:
            StateExists
        """
        try:
            await self.records.committed(tenant, ref)
        except StateNotFound:
            return
        except StateCorrupt:
            pass
        raise taken(ref)

    async def get(self, tenant: str, ref: str) -> Record:
        """The record, with the expiry that counts.

        Raises:
            StateExpired: its time is over.
            StateLost: it was in a store that this one has replaced.
            StateNotFound: there is none.
        """
        await self.open()
        try:
            record = await self.records.effective(tenant, ref)
        except StateNotFound:
            await self._say_why(tenant, ref)
            raise
        if record.has_expired(self._clock()):
            raise StateExpired(f"the state {ref} has expired")
        return record

    async def content(self, record: Record) -> bytes:
        """The snapshot of a record that `get` or `put` returned.

        Raises:
            StateCorrupt: it isn't what was written.
            StateNotFound: it was deleted meanwhile.
        """
        try:
            content = await self.blobs.get(layout.snapshot(record))
        except BlobMissing:
            found = await self.records.committed(record.tenant, record.ref)
            if layout.stamp(found) != layout.stamp(record):
                raise StateNotFound(f"state {record.ref} is another one by now") from None
            raise StateCorrupt(f"the snapshot of state {record.ref} is missing") from None
        digest = await asyncio.to_thread(hashlib.sha256, content)
        if digest.hexdigest() != record.sha256:
            raise StateCorrupt(
                f"the snapshot of state {record.ref} isn't what was written: "
                f"{len(content)} bytes of {record.nbytes}, with another SHA-256"
            )
        return content

    async def page(
        self, tenant: str, session: str | None, after: str | None, limit: int
    ) -> pages.Page:
        """States that haven't expired, of all sessions or of one, after that name."""
        return await pages.read_page(
            self.blobs, self.records, pages.Wanted(tenant, session, after, limit), self._clock()
        )

    async def delete(self, tenant: str, ref: str) -> None:
        """Delete a state and all that lies beside it, also one whose record can't be read.

        Raises:
            StateExpired, StateLost, StateNotFound: as `get`, but for one that is still there.
        """
        await self.open()
        try:
            record = await self.records.committed(tenant, ref)
        except StateNotFound:
            await self._say_why(tenant, ref)
            raise
        except StateCorrupt:
            await damaged.delete(self.blobs, tenant, ref)
        else:
            await self.records.remove(record)
        self.quota.recount(tenant)

    async def touch(self, tenant: str, ref: str, expires_at: float | None) -> Record:
        """Give a state another expiry; None is never. Raises as `get`."""
        return await self.records.touch(await self.get(tenant, ref), expires_at)

    async def usage(self, tenant: str) -> Usage:
        """What the tenant holds, at most 10 seconds old."""
        return await self.quota.usage(tenant)

    async def head(self, tenant: str, session: str) -> Head | None:
        """See `Heads`, as the next two."""
        return await self.heads.head(tenant, session)

    async def claim(
        self, tenant: str, session: str, head: Head | None, deadline: float, *, own: bool = True
    ) -> Claim:
        """Begin a turn of a session after that head; None opens it."""
        await self.open()
        return await self.heads.claim(tenant, session, head, deadline, own=own)

    async def end(self, claim: Claim, ref: str | None) -> None:
        """End a turn, with the state it led to or without one."""
        await self.heads.end(claim, ref)

    async def forget_session(self, tenant: str, session: str) -> int:
        """Delete a session and all its states; says how many states.

        Raises:
            SessionConflict: a turn is under way.
        """
        await self.open()
        self.quota.recount(tenant)
        return await self._forgetting.session(tenant, session)

    async def forget_tenant(self, tenant: str) -> int:
        """Delete all states and sessions of a tenant; says how many states."""
        await self.open()
        self.quota.recount(tenant)
        return await self._forgetting.tenant(tenant)

    async def sweep(self, now: float) -> Swept:
        """Remove what is over by `now`; one engine of a shared store does it now and then."""
        await self.open()
        return await self._sweeper.sweep(now)

    async def put_document(self, tenant: str, ref: str, content: bytes) -> None:
        """Keep the answer that goes with a state of that name, for as long as the state.

        Raises:
            StateExists: there is another one.
        """
        await self.records.put_document(tenant, ref, content)
        self.quota.add(tenant, 0, len(content))

    async def document(self, tenant: str, ref: str) -> bytes:
        """What was kept.

        Raises:
            StateNotFound: nothing was.
        """
        return await self.records.document(tenant, ref)

    async def delete_document(self, tenant: str, ref: str) -> None:
        """Delete what was kept; nothing is no error."""
        await self.blobs.delete(layout.document(tenant, ref))
        self.quota.recount(tenant)

    async def _say_why(self, tenant: str, ref: str) -> None:
        """Raise what is known of a state that isn't there."""
        try:
            await self.blobs.get(layout.expired(tenant, ref))
        except BlobMissing:
            pass
        else:
            raise StateExpired(f"the state {ref} has expired")
        home = refs.parse_home(ref)
        if home is None or home.epoch is None or home.epoch == self.epoch:
            return
        if not self._place.lies_elsewhere(ref):
            raise StateLost(
                f"the state {ref} was in store {home.epoch}, which is gone; this is store "
                f"{self.epoch}. Send the whole conversation again."
            )

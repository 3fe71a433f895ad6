"""Saved states as things: shown, listed, forked, moved and forgotten. No HTTP and no engine here.

What a generation does with a state is in `turns`. Every call names the tenant, and another tenant's
state is as absent as one that never was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rwkv_server.states import content as files
from rwkv_server.states import exports, refs, uploads
from rwkv_server.states.claims import Claims
from rwkv_server.states.erasures import Erasures
from rwkv_server.states.errors import (
    StateForbidden,
    StateInUse,
    StateNeedsSharedStore,
    StateNotFound,
    StateStoreUnavailable,
)
from rwkv_server.states.exports import Told
from rwkv_server.states.parts import Facts, New, Parts
from rwkv_server.states.record import Finish, Record
from rwkv_server.states.refs import Home
from rwkv_server.states.store import pages
from rwkv_server.states.store.pages import Page
from rwkv_server.states.store.quota import Usage
from rwkv_server.states.turn import check_fingerprint

# Metadata and names around a snapshot's bytes in an uploaded file.
ROOM = 1 << 20
# Uploads that are parsed at the same time: each takes a core.
IMPORTS = 2
# Seconds of life that aren't worth a write.
TOUCH_S = 1.0


class SavedStates:
    """All saved states that this engine can reach."""

    def __init__(
        self,
        facts: Facts,
        parts: Parts,
        clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """Keep them; `random_bytes` is such as `secrets.token_bytes`."""
        self.facts = facts
        self.store = parts.store
        self._memory, self._peers, self._prefill = parts.memory, parts.peers, parts.prefill
        self._clock, self._random_bytes = clock, random_bytes
        self.claims = Claims(parts.store, clock)
        self.erasures = Erasures(parts)
        self._importing = asyncio.Semaphore(IMPORTS)

    @property
    def durable(self) -> bool:
        """Whether states outlive their pod."""
        return self.store.kind not in ("ephemeral", "memory")

    @property
    def largest_upload(self) -> int:
        """Bytes that a snapshot's file may have."""
        return self.facts.layout.nbytes + ROOM

    @property
    def largest_pth(self) -> int:
        """Bytes that an initial state may have as .pth."""
        return uploads.largest_pth(self.facts.layout)

    async def show(self, tenant: str, ref: str) -> Record:
        """A state's record, from here or from its home; raises as `store.get`."""
        refs.check_id(ref, "ref")
        if self._elsewhere(ref) is not None:
            return await self._peers.record(tenant, ref)
        return await self.store.get(tenant, ref)

    async def content(self, record: Record) -> bytes:
        """A state's file, from here or from its home; its sum is checked."""
        if self._elsewhere(record.ref) is not None:
            return await self._peers.content(record.tenant, record)
        return await self.store.content(record)

    async def export(self, tenant: str, ref: str) -> tuple[bytes, memoryview]:
        """A state's file with its record inside: the head and the tensors.

        Raises:
            StateForbidden: everybody is the same tenant.
        """
        self._refuse_when_open("exported")
        record = await self.show(tenant, ref)
        return await asyncio.to_thread(exports.embed, await self.content(record), record)

    async def page(self, tenant: str, session: str | None, after: str | None, limit: int) -> Page:
        """A page of the tenant's states, of all engines; StateForbidden as `export`."""
        self._refuse_when_open("listed")
        found = [await self.store.page(tenant, session, after, limit)]
        if not self.store.shared:
            found += await self._peers.pages(tenant, session, after, limit)
        records = sorted((r for page in found for r in page.records), key=pages.order)
        more = len(records) > limit or any(page.after is not None for page in found)
        shown = tuple(records[:limit])
        return Page(shown, shown[-1].ref if more and shown else None)

    async def usage(self, tenant: str) -> Usage:
        """How many states a tenant has on this engine's store, and how many bytes."""
        return await self.store.usage(tenant)

    async def fork(self, new: New, ref: str) -> Record:
        """A state of its own with the same content.

        Raises:
            StateIncompatible: it is of another model, which the copy wouldn't tell.
        """
        self.name(new)
        parent = await self.show(new.tenant, ref)
        check_fingerprint(parent, self.facts.fingerprint)
        content = await self.content(parent)
        told = Told(parent.consumed_tokens, parent.pending, parent.last_role)
        return await self._put(new, content, told, parent.finish_reason, parent.ref)

    async def prefill(self, request: dict[str, Any], new: New) -> Record:
        """A state made from a text or from messages."""
        self.name(new)
        return await self._prefill.prefill(request, new)

    async def import_file(self, new: New, content: bytes) -> Record:
        """A state from an exported file; of its record only counts, tokens and role are believed.

        Raises:
            StateCorrupt, StateIncompatible: nothing was written.
        """
        self.name(new)
        async with self._importing:
            slot, told = await asyncio.to_thread(self._read_import, content)
        return await self._put_slot(new, slot, told, "import")

    async def import_pth(self, new: New, content: bytes) -> Record:
        """A state from a state-tuned model's .pth. Raises as `import_file`."""
        self.name(new)
        slot = memoryview(bytearray(self.facts.layout.nbytes))
        async with self._importing:
            await uploads.read_initial_state(content, self.facts.layout, slot)
            await asyncio.to_thread(files.check_finite, self.facts.layout, slot)
        return await self._put_slot(new, slot, Told(), "initial")

    async def touch(self, tenant: str, ref: str, ttl_s: float | None) -> Record:
        """Give a state a new time to live, from now."""
        known, expires_at = await self._here(tenant, ref), self._expiry(ttl_s)
        if known.expires_at is not None and abs(expires_at - known.expires_at) < TOUCH_S:
            return known  # each touch leaves a file until the next sweep
        return await self.store.touch(tenant, ref, expires_at)

    async def delete(self, tenant: str, ref: str) -> None:
        """Forget a state, also one that has expired and not gone yet.

        Raises:
            StateInUse: a request reads it.
        """
        refs.check_id(ref, "ref")
        if self._elsewhere(ref) is not None:
            await self._here(tenant, ref)
        if self._memory.in_use(tenant, ref):
            raise StateInUse(f"state {ref} is in use by a request; try again when that ends")
        await self.store.delete(tenant, ref)
        self._memory.forget(tenant, ref)

    async def document(self, tenant: str, ref: str) -> bytes:
        """The answer of the Responses API that was kept beside a state."""
        await self._here(tenant, ref)
        return await self.store.document(tenant, ref)

    async def forget(self, tenant: str, session: str | None) -> int:
        """Erase a session, its states and its head, or all that a tenant has, on all engines.

        Returns:
            How many states there were.

        Raises:
            StateForbidden: everybody is the same tenant, and no session was named.
        """
        if session is None:
            self._refuse_when_open("erased all at once")
        else:
            refs.check_id(session, "session")
        return await self.erasures.everywhere(tenant, session)

    async def session(self, tenant: str, session: str) -> dict[str, Any]:
        """Where a session is: its head and how many turns it had.

        Raises:
            StateNotFound: there is no such session.
            StateStoreUnavailable: an engine that may have it doesn't answer.
        """
        refs.check_id(session, "session")
        found = await self.session_here(tenant, session)
        if found is None and not self.store.shared:
            found = await self._peers.session(tenant, session)
        if found is None:
            raise StateNotFound(f"there is no session {session}", param="session")
        return found

    async def session_here(self, tenant: str, session: str) -> dict[str, Any] | None:
        """What this engine's store says of a session."""
        head = await self.store.head(tenant, session)
        if head is None:
            return None
        where = {"id": session, "ordinal": self.facts.ordinal}
        return {**where, "ref": head.ref, "turns": head.turn, "busy": head.busy}

    def name(self, new: New) -> str:
        """The ref that a new state gets.

        Raises:
            StateNeedsSharedStore: a name of the client's, in a store of one pod.
        """
        if new.name is None:
            home = Home(self.facts.ordinal, self.store.epoch)
            return refs.make_ref(home, self._random_bytes, new.prefix)
        refs.check_name(new.name, "name")
        if not self.store.shared:
            raise StateNeedsSharedStore(
                f"the name {new.name!r} needs a store that all pods share, and this one is "
                f"{self.store.kind}: leave the name out and use the ref in the answer",
                param="name",
            )
        return new.name

    def _refuse_when_open(self, what: str) -> None:
        if self.facts.open_access:
            raise StateForbidden(
                f"states can't be {what} without API keys, where everybody is the same tenant: "
                "set auth.mode to APIKeys"
            )

    def _elsewhere(self, ref: str) -> int | None:
        home = refs.parse_home(ref)
        if self.store.shared or home is None or home.ordinal == self.facts.ordinal:
            return None
        return home.ordinal

    async def _here(self, tenant: str, ref: str) -> Record:
        """A state of this engine; what only its own can do is refused for others'."""
        record = await self.show(tenant, ref)
        elsewhere = self._elsewhere(ref)
        if elsewhere is not None:
            raise StateStoreUnavailable(
                f"state {ref} is on engine {elsewhere}, which didn't get this request; try again",
                retry_after_s=5,
            )
        return record

    def _read_import(self, content: bytes) -> tuple[memoryview, Told]:
        slot = memoryview(bytearray(self.facts.layout.nbytes))
        metadata = files.read_metadata(content)
        exports.check_sum(content, metadata)
        told = exports.read_told(metadata, self.facts.fingerprint, self.facts.limits)
        files.from_safetensors(self.facts.layout, content, slot)
        files.check_finite(self.facts.layout, slot)
        return slot, told

    async def _put_slot(self, new: New, slot: memoryview, told: Told, finish: Finish) -> Record:
        content = await asyncio.to_thread(files.to_safetensors, self.facts.layout, slot, {})
        return await self._put(new, content, told, finish, None)

    async def _put(
        self, new: New, content: bytes, told: Told, finish: Finish, parent: str | None
    ) -> Record:
        record = Record(
            ref=self.name(new),
            parent=parent,
            tenant=new.tenant,
            session=new.session,
            fingerprint=self.facts.fingerprint,
            nbytes=len(content),
            sha256="",  # the store writes it
            consumed_tokens=told.consumed_tokens,
            pending=told.pending,
            finish_reason=finish,
            last_role=told.last_role,
            created_at=self._clock(),
            expires_at=self._expiry(new.ttl_s),
            epoch=self.store.epoch,
        )
        return await self.store.put(record, content)

    def _expiry(self, ttl_s: float | None) -> float:
        return self._clock() + (self.facts.default_ttl_s if ttl_s is None else ttl_s)

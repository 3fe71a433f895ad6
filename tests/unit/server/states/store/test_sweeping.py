"""However calls interleave: a client alone doesn't notice sweeps, and of many some are refused."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from state_stores import Clock, make_record, store_on, take_turn
from store_faults import PaperBlobs

from rwkv_server.states.errors import SessionConflict, StateStoreUnavailable
from rwkv_server.states.store import layout
from rwkv_server.states.store.states import StateStore

SESSIONS = ("s", "t")


@dataclass
class LateBlobs:
    """A backend whose calls take their time, and overtake each other."""

    inner: PaperBlobs
    random: random.Random

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*asked: Any) -> Any:
            await self._wait()
            try:
                return await getattr(self.inner, name)(*asked)
            finally:
                await self._wait()

        return call

    async def _wait(self) -> None:
        for _ in range(self.random.choice([0, 0, 1, 1, 2, 5, 20])):
            await asyncio.sleep(0)


@dataclass
class Client:
    """What one tenant does, and what it should find."""

    store: StateStore
    clock: Clock
    states: dict[str, str] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)

    async def take_turn(self, session: str) -> None:
        head = await self.store.head("ann", session)
        assert (head and head.ref) == self.heads.get(session)
        claim = await self.store.claim("ann", session, head, self.clock.now + 60)
        record = make_record("r", "ann", session=session, created_at=self.clock())
        ref = f"r{record.created_at}"
        await self.store.put(record.model_copy(update={"ref": ref}), b"x")
        await self.store.end(claim, ref)
        self.states[ref], self.heads[session] = session, ref

    async def forget(self, session: str) -> None:
        gone = [ref for ref, of in self.states.items() if of == session]
        assert await self.store.forget_session("ann", session) == len(gone)
        self.states = {ref: of for ref, of in self.states.items() if of != session}
        self.heads.pop(session, None)

    async def erase(self, session: str) -> None:
        assert await self.store.forget_tenant("ann") == len(self.states)
        self.states, self.heads = {}, {}


@contextlib.asynccontextmanager
async def swept(*stores: StateStore) -> AsyncIterator[None]:
    """Sweep all the time."""
    over = asyncio.Event()

    async def sweep(store: StateStore) -> None:
        while not over.is_set():
            await store.sweep(store._clock())
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(sweep(store)) for store in stores]
    try:
        yield
    finally:
        over.set()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize("seed", range(8))
async def test_a_client_finds_what_it_made(seed: int) -> None:
    source, clock = random.Random(seed), Clock()
    blobs: Any = LateBlobs(PaperBlobs(clock=clock), source)
    store, other = (store_on(blobs, clock, ordinal=n, seed=seed + 99 * n) for n in (0, 1))
    client = Client(store, clock)
    async with swept(store, other):
        for _ in range(30):
            deeds = (*(client.take_turn,) * 4, client.forget, client.forget, client.erase)
            await source.choice(deeds)(source.choice(SESSIONS))
            page = await store.page("ann", None, None, 99)
            assert {record.ref for record in page.records} == set(client.states)


@pytest.mark.parametrize("seed", range(8))
async def test_clients_at_once_are_refused_at_most(seed: int) -> None:
    source, clock = random.Random(seed), Clock()
    blobs: Any = LateBlobs(PaperBlobs(clock=clock), source)
    stores = [store_on(blobs, clock, ordinal=n, seed=seed + 99 * n) for n in (0, 1)]

    async def act(store: StateStore) -> None:
        for _ in range(25):
            session, deed = (
                source.choice(SESSIONS),
                source.choice(["turn", "turn", "forget", "erase"]),
            )
            with contextlib.suppress(SessionConflict):
                if deed == "turn":
                    head = await store.head("ann", session)
                    await store.end(await store.claim("ann", session, head, clock() + 60), "r")
                elif deed == "forget":
                    await store.forget_session("ann", session)
                else:
                    await store.forget_tenant("ann")

    async with swept(*stores):
        await asyncio.gather(*(act(store) for store in (*stores, *stores)))
    for session in SESSIONS:
        await stores[0].forget_session("ann", session)
        assert await stores[1].head("ann", session) is None


class Failing(PaperBlobs):
    """Reads no erasure."""

    async def get(self, key: str) -> bytes:
        if key.startswith(layout.FORGET):
            raise StateStoreUnavailable("the store is away")
        return await super().get(key)


async def test_one_cause_of_many_unfinished_erasures_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    blobs = Failing()
    for tenant in ("a", "b", "c"):
        await blobs.create(layout.forgetting(tenant, None), b"{}")
    await store_on(blobs, Clock()).open()
    told = [line for line in caplog.messages if "the store is away" in line]
    assert len(told) == 1 and "and 2 more" in told[0]


class Meanwhile(PaperBlobs):
    """Does something as soon as a session was ended for good."""

    then: Callable[[], Awaitable[None]] | None = None

    async def create(self, key: str, content: bytes) -> None:
        await super().create(key, content)
        then = self.then
        if then is not None and b"forgotten" in content:
            self.then = None
            await then()


async def test_a_session_that_is_opened_anew_during_its_erasure_stays() -> None:
    clock, blobs = Clock(), Meanwhile()
    store, other = store_on(blobs, clock), store_on(blobs, clock, seed=1)
    await other.open()
    await take_turn(store, clock, "old")

    async def open_anew() -> None:
        await take_turn(other, clock, "new")

    blobs.then = open_anew
    assert await store.forget_session("default", "s") == 1
    assert blobs.then is None
    head = await store.head("default", "s")
    assert head is not None and head.ref == "new"
    assert await store.content(await store.get("default", "new")) == b"new"
    page = await store.page("default", None, None, 9)
    assert [record.ref for record in page.records] == ["new"]

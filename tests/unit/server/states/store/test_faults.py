"""Whatever goes wrong at whichever call: no half of anything is seen, nothing told is lost, and the
same again works."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import pytest
from state_stores import Clock, make_record, seeded, store_on
from store_faults import HOWS, FaultyBlobs, How, Killed, PaperBlobs, PaperDisk

from rwkv_server.states.errors import (
    StateExpired,
    StateNotFound,
    StateStoreUnavailable,
)
from rwkv_server.states.store import layout
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.states import StateStore
from rwkv_server.states.store.threads import Threads
from rwkv_server.states.store.volume import VolumeBlobs

T = TypeVar("T")
NEW = make_record("new", session="s")
ROOT = Path("/volume")


@dataclass(frozen=True)
class Deed:
    """Something a store is asked.

    Attributes:
        act: does it; again after a fault, on a fresh store.
        done: what is true once it was told to be done.
    """

    act: Callable[[StateStore, Clock], Awaitable[object]]
    done: Callable[[StateStore, Clock], Awaitable[None]]


async def prepare(store: StateStore, clock: Clock) -> None:
    for ref in ("r1", "r2"):
        head = await store.head("default", "s")
        claim = await store.claim("default", "s", head, clock.now + 60)
        await store.put(make_record(ref, session="s"), ref.encode())
        await store.put_document("default", ref, b"{}")
        await store.end(claim, ref)
    await store.put(make_record("old", expires_at=clock.now + 10), b"old")
    await store.put(make_record("alone"), b"alone")
    await store.touch("default", "alone", clock.now + 7200)


async def put(store: StateStore, clock: Clock) -> None:
    await store.put(NEW, b"new")


async def is_put(store: StateStore, clock: Clock) -> None:
    assert await store.content(await store.get("default", "new")) == b"new"


async def delete(store: StateStore, clock: Clock) -> None:
    try:
        await store.delete("default", "alone")
    except StateNotFound:
        pass  # by the try that failed


async def is_deleted(store: StateStore, clock: Clock) -> None:
    with pytest.raises(StateNotFound):
        await store.get("default", "alone")


async def touch(store: StateStore, clock: Clock) -> None:
    await store.touch("default", "alone", None)


async def is_touched(store: StateStore, clock: Clock) -> None:
    assert (await store.get("default", "alone")).expires_at is None


async def take_turn(store: StateStore, clock: Clock) -> None:
    head = await store.head("default", "s")
    if head is not None and head.ref == "new":
        return
    clock.now += 120  # past the deadline of one that died
    claim = await store.claim("default", "s", head, clock.now + 60)
    await store.put(NEW, b"new")
    await store.end(claim, "new")


async def has_turned(store: StateStore, clock: Clock) -> None:
    head = await store.head("default", "s")
    assert head is not None and (head.ref, head.busy) == ("new", False)
    await is_put(store, clock)


async def forget_session(store: StateStore, clock: Clock) -> None:
    clock.now += 120
    await store.forget_session("default", "s")


async def is_session_forgotten(store: StateStore, clock: Clock) -> None:
    assert await store.head("default", "s") is None
    page = await store.page("default", "s", None, 9)
    assert page.records == ()


async def forget_tenant(store: StateStore, clock: Clock) -> None:
    clock.now += 5
    await store.forget_tenant("default")


async def is_tenant_forgotten(store: StateStore, clock: Clock) -> None:
    assert (await store.page("default", None, None, 9)).records == ()
    assert await store.head("default", "s") is None
    # Parts of states without their records may be left, until a sweep.
    rest = [blob.key for blob in await store.blobs.list("") if blob.key != layout.EPOCH]
    assert not [key for key in rest if not key.startswith("default/states/")]


async def sweep(store: StateStore, clock: Clock) -> None:
    clock.now += 600
    await store.sweep(clock.now)


async def is_swept(store: StateStore, clock: Clock) -> None:
    with pytest.raises(StateExpired):
        await store.get("default", "old")
    keys = [blob.key for blob in await store.blobs.list("default/states")]
    assert "default/states/old.expired" in keys and "default/states/old.json" not in keys


DEEDS = {
    "put": Deed(put, is_put),
    "delete": Deed(delete, is_deleted),
    "touch": Deed(touch, is_touched),
    "turn": Deed(take_turn, has_turned),
    "forget a session": Deed(forget_session, is_session_forgotten),
    "forget a tenant": Deed(forget_tenant, is_tenant_forgotten),
    "sweep": Deed(sweep, is_swept),
}


async def check_whole(store: StateStore) -> None:
    """Whatever happened: what is seen is all there."""
    page = await store.page("default", None, None, 99)
    for record in page.records:
        assert await store.content(record) == record.ref.encode()
        assert await store.get("default", record.ref) == record
    head = await store.head("default", "s")
    if head is not None:
        await store.get("default", head.ref)
        before = {record.ref for record in page.records}
        assert {"r1", "r2"} <= before, "a session with half of its states"


async def check_clean(store: StateStore, clock: Clock) -> None:
    """Nothing is left of what was interrupted, after a while."""
    clock.now += 4000
    await store.sweep(clock.now)
    assert (await store.sweep(clock.now)).leftovers == 0
    await check_whole(store)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", DEEDS)
async def test_a_backend_that_fails_at_any_call(name: str, how: How) -> None:
    deed = DEEDS[name]
    for at in itertools.count():
        clock, backend = Clock(), PaperBlobs()
        await prepare(store_on(backend, clock), clock)
        faulty = FaultyBlobs(backend, at, how)
        told = False
        try:
            await deed.act(store_on(faulty, clock, seed=at), clock)
            told = True
        except (StateStoreUnavailable, Killed):
            pass
        await check_again(deed, store_on(backend, clock, seed=at + 10_000), clock, told)
        if faulty.calls <= at:
            assert at > 2
            return


async def check_again(deed: Deed, store: StateStore, clock: Clock, told: bool) -> None:
    await store.open()
    await check_whole(store)
    if told:
        await deed.done(store, clock)
    await deed.act(store, clock)
    await deed.done(store, clock)
    await check_whole(store)
    await check_clean(store, clock)


@pytest.mark.parametrize("kept", ["all", "synced", "names"])
@pytest.mark.parametrize("name", DEEDS)
async def test_power_lost_at_any_system_call(
    name: str, kept: Literal["all", "synced", "names"]
) -> None:
    deed, clock, disk = DEEDS[name], Clock(), PaperDisk.empty(ROOT)
    await prepare(store_on(on_disk(disk), clock), clock)
    start, calls = clock.now, 0
    for at in itertools.count():
        clock.now = start
        dying = disk.after_loss("all")
        dying.at = at
        told = False
        try:
            await deed.act(store_on(on_disk(dying, at), clock, seed=at), clock)
            told = True
        except Killed:
            pass
        found = dying.after_loss(kept)
        await check_again(
            deed, store_on(on_disk(found, at + 10_000), clock, seed=at + 10_000), clock, told
        )
        calls += 1
        if told:
            assert calls > 5
            return


def on_disk(disk: PaperDisk, seed: int = 0) -> Blobs:
    return VolumeBlobs(ROOT, "ns/chat", disk, NoThreads(1), seeded(seed))


class NoThreads(Threads):
    """Nothing blocks on a disk in memory."""

    async def run(self, work: Callable[[], T]) -> T:
        return work()

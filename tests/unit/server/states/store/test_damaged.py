"""One file that nobody can read is in nobody's way, and goes when its owner says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from state_stores import Clock, make_record, memory, store_on, take_turn, volume

from rwkv_server.states.errors import StateCorrupt, StateExists, StateNotFound
from rwkv_server.states.store import layout
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.heads import Head
from rwkv_server.states.store.states import StateStore

BROKEN = layout.record("default", "broken")


@pytest.fixture(params=["volume", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    backends: dict[str, Callable[[], Blobs]] = {
        "volume": lambda: volume(tmp_path),
        "memory": memory,
    }
    return backends[request.param]()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def replace(blobs: Blobs, key: str, content: bytes) -> None:
    await blobs.delete(key)
    await blobs.create(key, content)


@pytest.fixture(params=[b"{", b'{"format": 2}'], ids=["damaged", "of a later version"])
async def store(request: pytest.FixtureRequest, blobs: Blobs, clock: Clock) -> StateStore:
    """Of a tenant with two states; one of them can't be read."""
    store = store_on(blobs, clock)
    claim = await store.claim("default", "s", None, clock.now + 60)
    await store.put(make_record("whole", session="s"), b"whole")
    await store.end(claim, "whole")
    await store.put(make_record("broken"), b"broken")
    await store.touch("default", "broken", None)
    await store.put_document("default", "broken", b"{}")
    await replace(blobs, BROKEN, request.param)
    return store


async def test_a_list_goes_without_it(store: StateStore) -> None:
    page = await store.page("default", None, None, 1)
    assert ([record.ref for record in page.records], page.after) == (["whole"], None)


async def test_its_own_error_says_what_to_do(store: StateStore) -> None:
    with pytest.raises(StateCorrupt, match="DELETE /v1/states/broken removes it"):
        await store.get("default", "broken")


async def test_its_name_is_taken_until_it_is_deleted(store: StateStore, blobs: Blobs) -> None:
    before = {blob.key for blob in await blobs.list("")}
    for call in (
        store.check_free("default", "broken"),
        store.put(make_record("broken"), b"another"),
    ):
        with pytest.raises(StateExists, match="delete it first"):
            await call
    assert {blob.key for blob in await blobs.list("")} == before
    await store.delete("default", "broken")
    left = [blob.key for blob in await blobs.list("") if "broken" in blob.key]
    assert left == []
    with pytest.raises(StateNotFound):
        await store.get("default", "broken")
    await store.put(make_record("broken"), b"another")
    assert await store.content(await store.get("default", "broken")) == b"another"
    assert await store.content(await store.get("default", "whole")) == b"whole"


async def test_a_deletion_spares_who_saves_under_its_name_now(
    store: StateStore, blobs: Blobs
) -> None:
    await asyncio.sleep(0.02)  # files get the time of the last tick
    fresh = layout.snapshot(make_record("broken"))
    await blobs.create(fresh, b"fresh")
    await store.delete("default", "broken")
    assert await blobs.get(fresh) == b"fresh"


async def test_a_session_beside_it_can_be_erased(store: StateStore, blobs: Blobs) -> None:
    assert await store.forget_session("default", "s") == 1
    assert BROKEN in {blob.key for blob in await blobs.list("")}


async def test_a_sweep_counts_it_and_goes_on(store: StateStore, blobs: Blobs, clock: Clock) -> None:
    await store.put(make_record("old", "else", expires_at=clock.now), b"old")
    swept = await store.sweep(clock.now + 8 * 86400)
    assert (swept.damaged, swept.expired) == ((BROKEN,), 1)
    await store.delete("default", "broken")
    assert (await store.sweep(clock.now)).damaged == ()


async def test_an_expiry_that_cant_be_read_is_no_other(blobs: Blobs, clock: Clock) -> None:
    store = store_on(blobs, clock)
    await store.put(make_record("r", session="s"), b"r")
    await store.touch("default", "r", None)
    (expiry,) = await blobs.list(layout.expiries("default", "r"))
    await replace(blobs, expiry.key, b"[]")
    with pytest.raises(StateCorrupt):
        await store.get("default", "r")
    assert (await store.page("default", None, None, 9)).records == ()
    assert (await store.sweep(clock.now)).damaged == (layout.record("default", "r"),)
    assert await store.forget_session("default", "s") == 1
    assert [blob.key for blob in await blobs.list("")] == [layout.EPOCH]


async def test_an_end_that_cant_be_read_stops_no_sweep(blobs: Blobs, clock: Clock) -> None:
    store = store_on(blobs, clock)
    for session in ("a", "b"):
        await store.end(await store.claim("default", session, None, clock.now + 60), "gone")
    await replace(blobs, f"{layout.heads('default', 'a')}/000001.001.end", b"{")
    clock.now += 8 * 86400
    await store.sweep(clock.now)
    assert await store.head("default", "b") is None


@pytest.mark.parametrize("content", [b"{", b'{"claim": null}', b'{"claim": {"place": 1}}', b"[]"])
async def test_an_erasure_that_cant_be_read_stops_no_other(
    blobs: Blobs, clock: Clock, content: bytes
) -> None:
    store = store_on(blobs, clock)
    await store.put(make_record("r", "a"), b"r")
    await store.put(make_record("r", "b"), b"r")
    told = f'{{"tenant": "b", "session": null, "before": {clock.now + 9}, "claim": null}}'
    await blobs.create(layout.forgetting("a", None), content)
    await blobs.create(layout.forgetting("b", None), told.encode())
    fresh = store_on(blobs, clock)
    await fresh.open()
    with pytest.raises(StateNotFound):
        await fresh.get("b", "r")
    await fresh.sweep(clock.now)
    clock.now += 5
    assert await fresh.forget_tenant("a") == 1
    assert list(await blobs.list(layout.FORGET)) == []


async def test_a_record_that_was_copied_by_hand_is_nobodys(blobs: Blobs, clock: Clock) -> None:
    """As by somebody who restores a tenant's folder under another name."""
    store = store_on(blobs, clock)
    await store.put(make_record("r", "one"), b"1")
    content = await blobs.get(layout.record("one", "r"))
    for tenant, ref in (("two", "r"), ("one", "other")):
        await blobs.create(layout.record(tenant, ref), content)
        with pytest.raises(StateCorrupt, match="record of another state or tenant"):
            await store.get(tenant, ref)
        await store.delete(tenant, ref)
    await blobs.create(layout.record("two", "r"), content)
    assert (await store.page("two", None, None, 9)).records == ()
    assert await store.forget_tenant("two") == 1
    assert await store.content(await store.get("one", "r")) == b"1"
    assert [key for key in await blobs.list("two")] == []


async def test_a_session_whose_log_is_damaged_can_be_erased(blobs: Blobs, clock: Clock) -> None:
    store = store_on(blobs, clock)
    for ref in ("r1", "r2"):
        await take_turn(store, clock, ref)
    await take_turn(store, clock, "other", "t")
    (last,) = [
        b.key for b in await blobs.list(layout.heads("default", "s")) if "2.001.end" in b.key
    ]
    await replace(blobs, last, b"{")
    with pytest.raises(StateCorrupt):
        await store.head("default", "s")
    assert await store.forget_session("default", "s") == 2
    assert await store.head("default", "s") is None
    await take_turn(store, clock, "r3")
    assert (await store.head("default", "s")) == Head(1, "r3", False)
    assert await store.content(await store.get("default", "other")) == b"other"

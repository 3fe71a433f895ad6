"""What every store must do to erase and to sweep; one suite, run on each backend."""

from __future__ import annotations

import pytest
from state_stores import Clock, make_record, store_on, take_turn

from rwkv_server.states.errors import SessionConflict, StateExpired, StateNotFound
from rwkv_server.states.store import layout
from rwkv_server.states.store.blobs import BlobMissing, Blobs
from rwkv_server.states.store.heads import Head
from rwkv_server.states.store.states import StateStore


class RemovalBehaviour:
    """Of erasures and the sweep; a subclass has the fixtures `blobs` and `clock`."""

    @pytest.fixture
    def store(self, blobs: Blobs, clock: Clock) -> StateStore:
        return store_on(blobs, clock)

    async def test_a_session_is_forgotten(self, store: StateStore, clock: Clock) -> None:
        await take_turn(store, clock, "r1")
        await take_turn(store, clock, "r2")
        await take_turn(store, clock, "o1", "other")
        assert await store.forget_session("default", "s") == 2
        assert await store.head("default", "s") is None
        page = await store.page("default", None, None, 9)
        assert [record.ref for record in page.records] == ["o1"]
        await take_turn(store, clock, "r3")
        assert (await store.head("default", "s")) == Head(4, "r3", False)
        assert await store.forget_session("default", "nothing") == 0
        assert list(await store.blobs.list(layout.FORGET)) == []

    async def test_a_turn_under_way_keeps_its_session(
        self, store: StateStore, clock: Clock
    ) -> None:
        await take_turn(store, clock, "r1")
        claim = await store.claim("default", "s", await store.head("default", "s"), clock.now + 60)
        with pytest.raises(SessionConflict):
            await store.forget_session("default", "s")
        await store.end(claim, None)
        assert await store.head("default", "s") == Head(1, "r1", False)
        assert (await store.get("default", "r1")).session == "s"

    async def test_a_tenant_is_forgotten(self, store: StateStore, clock: Clock) -> None:
        await take_turn(store, clock, "r1")
        await take_turn(store, clock, "o1", "other")
        await store.put(make_record("alone"), b"")
        await store.put(make_record("r1", "else"), b"")
        clock.now += 5
        assert await store.forget_tenant("default") == 3
        keys = [blob.key for blob in await store.blobs.list("")]
        assert keys[0] == layout.EPOCH and {key.split("/")[0] for key in keys[1:]} == {"else"}

    async def test_a_damaged_record_holds_no_deletion_up(
        self, store: StateStore, clock: Clock
    ) -> None:
        await take_turn(store, clock, "r1")
        await store.put(make_record("r2"), b"")
        await store.put(make_record("r3", "else"), b"")
        key = layout.record("default", "r2")
        await store.blobs.delete(key)
        await store.blobs.create(key, b"{")
        assert await store.forget_session("default", "s") == 1
        assert key in {blob.key for blob in await store.blobs.list("")}
        clock.now += 5
        assert await store.forget_tenant("default") == 1
        keys = [blob.key for blob in await store.blobs.list("")]
        assert keys[0] == layout.EPOCH and {key.split("/")[0] for key in keys[1:]} == {"else"}

    async def test_a_sweep_takes_what_has_expired(self, store: StateStore, clock: Clock) -> None:
        await store.put(make_record("r1", expires_at=clock.now + 10), b"1")
        await store.put(make_record("r2", expires_at=clock.now + 10), b"2")
        await store.put_document("default", "r1", b"{}")
        await store.touch("default", "r2", None)
        await store.put(make_record("r3"), b"3")
        clock.now += 60
        assert (await store.sweep(clock.now)).expired == 0  # a touch may be on its way
        clock.now += 100
        swept = await store.sweep(clock.now)
        assert (swept.expired, swept.leftovers, swept.held.states) == (1, 0, 2)
        for ref in ("r2", "r3"):
            assert await store.content(await store.get("default", ref)) == ref[1:].encode()
        with pytest.raises(StateExpired):
            await store.get("default", "r1")
        with pytest.raises(StateNotFound):
            await store.document("default", "r1")
        assert (await store.sweep(clock.now)).expired == 0
        clock.now += 8 * 86400
        await store.sweep(clock.now)
        with pytest.raises(StateNotFound):
            await store.get("default", "r1")
        assert len(await store.blobs.list(layout.states("default"))) == 5

    async def test_a_sweep_leaves_what_is_being_written(
        self, store: StateStore, clock: Clock
    ) -> None:
        record = await store.put(make_record("r"), b"1")
        await store.blobs.delete(layout.record("default", "r"))
        assert (await store.sweep(clock.now + 60)).leftovers == 0
        assert await store.blobs.get(layout.snapshot(record)) == b"1"
        assert (await store.sweep(clock.now + 4000)).leftovers == 1
        with pytest.raises(BlobMissing):
            await store.blobs.get(layout.snapshot(record))

    async def test_a_sweep_shortens_logs(self, store: StateStore, clock: Clock) -> None:
        for number in range(1, 9):
            await take_turn(store, clock, f"r{number}")
        await store.sweep(clock.now)
        assert await store.head("default", "s") == Head(8, "r8", False)
        assert len(await store.blobs.list(layout.heads("default", "s"))) == 4
        await take_turn(store, clock, "r9")

    async def test_old_sessions_without_a_state_go(self, store: StateStore, clock: Clock) -> None:
        await take_turn(store, clock, "r1")
        await take_turn(store, clock, "l1", "lasting")
        await store.delete("default", "r1")
        clock.now += 8 * 86400
        await store.sweep(clock.now)
        assert await store.head("default", "s") is None
        clock.now += 8 * 86400
        await store.sweep(clock.now)
        assert list(await store.blobs.list(layout.heads("default", "s"))) == []
        assert await store.head("default", "lasting") == Head(1, "l1", False)
        await take_turn(store, clock, "r2")

    async def test_a_session_at_another_engines_state_stays(
        self, blobs: Blobs, clock: Clock
    ) -> None:
        store = store_on(blobs, clock, shared=False, ordinal=1)
        for session, ref in (("s", "p0-0000aaaa-x"), ("t", "p1-0000aaaa-x")):
            claim = await store.claim("default", session, None, clock.now + 60)
            await store.end(claim, ref)
        clock.now += 8 * 86400
        await store.sweep(clock.now)
        assert await store.head("default", "s") == Head(1, "p0-0000aaaa-x", False)
        assert await store.head("default", "t") is None

"""What every store of saved states must do; one suite, run on each backend."""

from __future__ import annotations

import asyncio

import pytest
from state_stores import Clock, make_record, store_on

from rwkv_server.states.errors import (
    StateCorrupt,
    StateExists,
    StateExpired,
    StateLost,
    StateNotFound,
    StateQuota,
    StateStoreUnavailable,
)
from rwkv_server.states.store import layout
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.states import StateStore

STRANGE = ["a.json", "a", "a.exp", "A:b_c-d", "ü", "x" * 128, ":" * 100, "a.exp.1"]


class StatesBehaviour:
    """Of a store; a subclass has the fixtures `blobs` and `clock`."""

    @pytest.fixture
    def store(self, blobs: Blobs, clock: Clock) -> StateStore:
        return store_on(blobs, clock)

    async def test_a_state_is_put_and_got(self, store: StateStore) -> None:
        committed = await store.put(make_record("r1", session="s"), b"snapshot")
        assert (committed.nbytes, committed.epoch) == (8, store.epoch)
        found = await store.get("default", "r1")
        assert found == committed
        assert await store.content(found) == b"snapshot"

    async def test_a_name_is_a_tenants_own(self, store: StateStore) -> None:
        await store.put(make_record("r", "one"), b"1")
        with pytest.raises(StateNotFound):
            await store.get("two", "r")
        await store.put(make_record("r", "two"), b"2")
        assert await store.content(await store.get("one", "r")) == b"1"
        assert await store.content(await store.get("two", "r")) == b"2"
        await store.delete("one", "r")
        assert await store.content(await store.get("two", "r")) == b"2"

    @pytest.mark.parametrize("name", STRANGE)
    async def test_names_are_only_names(self, store: StateStore, name: str) -> None:
        for number, ref in enumerate(STRANGE):
            await store.put(make_record(ref, name), bytes([number]))
        for number, ref in enumerate(STRANGE):
            assert await store.content(await store.get(name, ref)) == bytes([number])
        page = await store.page(name, None, None, 100)
        assert {record.ref for record in page.records} == set(STRANGE)

    async def test_a_name_is_used_once(self, store: StateStore) -> None:
        await store.put(make_record("r"), b"1")
        with pytest.raises(StateExists):
            await store.put(make_record("r"), b"2")
        assert await store.content(await store.get("default", "r")) == b"1"
        assert len(await store.blobs.list(layout.states("default"))) == 2

    async def test_the_same_again_is_the_same(self, store: StateStore) -> None:
        record = make_record("r")
        assert await store.put(record, b"1") == await store.put(record, b"1")

    async def test_of_many_writers_of_a_name_one_wins(self, blobs: Blobs, clock: Clock) -> None:
        async def write(number: int) -> bytes | None:
            content = bytes([number])
            try:
                await store_on(blobs, clock).put(make_record("r"), content)
            except StateExists:
                return None
            return content

        won = [content for content in await asyncio.gather(*map(write, range(8))) if content]
        store = store_on(blobs, clock)
        assert [await store.content(await store.get("default", "r"))] == won
        assert len(await blobs.list(layout.states("default"))) == 2

    async def test_all_of_a_deleted_state_goes(self, store: StateStore) -> None:
        await store.put(make_record("r"), b"1")
        await store.touch("default", "r", None)
        await store.put_document("default", "r", b"{}")
        await store.delete("default", "r")
        assert [blob.key for blob in await store.blobs.list("")] == [layout.EPOCH]
        with pytest.raises(StateNotFound):
            await store.get("default", "r")
        with pytest.raises(StateNotFound):
            await store.delete("default", "r")
        await store.put(make_record("r"), b"2")
        assert (await store.get("default", "r")).expires_at is None

    async def test_a_state_expires(self, store: StateStore, clock: Clock) -> None:
        record = await store.put(make_record("r", expires_at=clock.now + 10), b"1")
        assert (await store.get("default", "r")) == record
        clock.now += 11
        with pytest.raises(StateExpired):
            await store.get("default", "r")
        assert (await store.page("default", None, None, 9)).records == ()

    async def test_the_last_touch_counts(self, store: StateStore, clock: Clock) -> None:
        await store.put(make_record("r", expires_at=clock.now + 10), b"1")
        for seconds in range(30, 42):
            touched = await store.touch("default", "r", clock.now + seconds)
        assert await store.get("default", "r") == touched
        assert await store.content(touched) == b"1"
        assert (await store.page("default", None, None, 9)).records == (touched,)
        clock.now += 39
        assert await store.get("default", "r") == touched
        clock.now += 3
        with pytest.raises(StateExpired):
            await store.touch("default", "r", None)

    async def test_an_expired_name_is_free_once_it_was_swept(
        self, store: StateStore, clock: Clock
    ) -> None:
        await store.put(make_record("r", expires_at=clock.now + 10), b"1")
        clock.now += 200
        for call in (store.check_free("default", "r"), store.put(make_record("r"), b"2")):
            with pytest.raises(StateExists):
                await call
        await store.sweep(clock.now)
        await store.check_free("default", "r")
        await store.put(make_record("r"), b"2")
        assert await store.content(await store.get("default", "r")) == b"2"

    async def test_a_late_removal_spares_the_next_state_of_that_name(
        self, store: StateStore
    ) -> None:
        old = await store.put(make_record("r"), b"1")
        await store.delete("default", "r")
        await store.put(make_record("r"), b"2")
        await store.touch("default", "r", None)
        await store.records.remove(old)
        await store.records.remove(old, expired=True)
        assert await store.content(await store.get("default", "r")) == b"2"
        with pytest.raises(StateNotFound):
            await store.content(old)

    async def test_pages(self, store: StateStore) -> None:
        for number in range(45):
            session = "even" if number % 2 == 0 else "odd"
            await store.put(make_record(f"r{number:02}", session=session), b"")
        seen, after = [], None
        while True:
            page = await store.page("default", "even", after, 10)
            seen += [record.ref for record in page.records]
            if page.after is None:
                break
            assert len(page.records) == 10
            after = page.after
        assert seen == [f"r{number:02}" for number in range(0, 45, 2)]
        assert (await store.page("default", "none", None, 10)).records == ()

    async def test_changed_bytes_are_never_given_out(self, store: StateStore) -> None:
        record = await store.put(make_record("r"), b"good")
        key = layout.snapshot(record)
        await store.blobs.delete(key)
        with pytest.raises(StateCorrupt, match="missing"):
            await store.content(record)
        await store.blobs.create(key, b"goof")
        with pytest.raises(StateCorrupt, match="isn't what was written"):
            await store.content(record)

    async def test_a_broken_record_is_told(self, store: StateStore) -> None:
        await store.blobs.create(layout.record("default", "r"), b'{"format": 9}')
        with pytest.raises(StateCorrupt):
            await store.get("default", "r")

    async def test_the_epoch_outlives_its_maker(self, blobs: Blobs, clock: Clock) -> None:
        stores = [store_on(blobs, clock, seed=seed) for seed in range(6)]
        await asyncio.gather(*(store.open() for store in stores))
        assert len({store.epoch for store in stores}) == 1
        assert len(stores[0].epoch) == 8

    async def test_refs_of_a_store_that_is_gone(self, blobs: Blobs, clock: Clock) -> None:
        foreign = "p3-0000aaaa-" + "x" * 22
        with pytest.raises(StateLost):
            await store_on(blobs, clock, shared=True).get("default", foreign)
        with pytest.raises(StateLost):
            await store_on(blobs, clock, shared=False, ordinal=3).get("default", foreign)
        with pytest.raises(StateNotFound):  # its home knows
            await store_on(blobs, clock, shared=False, ordinal=2).get("default", foreign)
        store = store_on(blobs, clock)
        await store.open()
        with pytest.raises(StateNotFound):
            await store.get("default", f"p3-{store.epoch}-" + "x" * 22)

    async def test_something_else_in_the_epochs_place(self, blobs: Blobs, clock: Clock) -> None:
        await blobs.create(layout.EPOCH, b"<html>")
        with pytest.raises(StateStoreUnavailable, match="Another program"):
            await store_on(blobs, clock).open()

    async def test_documents(self, store: StateStore) -> None:
        await store.put_document("default", "r", b"{1}")
        await store.put_document("default", "r", b"{1}")
        with pytest.raises(StateExists):
            await store.put_document("default", "r", b"{2}")
        assert await store.document("default", "r") == b"{1}"
        with pytest.raises(StateNotFound):
            await store.document("other", "r")
        await store.delete_document("default", "r")
        with pytest.raises(StateNotFound):
            await store.document("default", "r")

    async def test_writers_at_once_share_a_quota(self, blobs: Blobs, clock: Clock) -> None:
        store = store_on(blobs, clock, quota=5000)

        async def write(number: int) -> bool:
            try:
                await store.put(make_record(f"r{number}"), b"x" * 2000)
            except StateQuota:
                return False
            return True

        assert sum(await asyncio.gather(*map(write, range(6)))) == 2
        assert (await store.usage("default")).states == 2
        for name in ("r9", "r8"):  # one that failed gives its room back
            with pytest.raises(StateQuota):
                await store.put(make_record(name), b"x" * 2000)
        clock.now += 11
        (first, _) = (await store.page("default", None, None, 9)).records
        await store.delete("default", first.ref)
        assert await write(7)

    async def test_a_quota_counts_real_bytes(self, blobs: Blobs, clock: Clock) -> None:
        store = store_on(blobs, clock, quota=5000)
        other = store_on(blobs, clock, quota=5000)
        await store.put(make_record("r1"), b"x" * 2000)
        assert (await store.usage("default")).states == 1
        await store.put(make_record("r2"), b"x" * 2000)
        with pytest.raises(StateQuota):
            await store.put(make_record("r3"), b"x" * 2000)
        with pytest.raises(StateQuota):
            await other.put(make_record("r3"), b"x" * 2000)
        await store.put(make_record("r3", "else"), b"x" * 2000)
        clock.now += 11
        held = sum(blob.size for blob in await blobs.list(layout.encode("default")))
        assert (await store.usage("default")).nbytes == held
        await store.delete("default", "r1")
        await store.put(make_record("r3"), b"x" * 2000)
        assert (await store.usage("default")).states == 2
        with pytest.raises(StateQuota):  # its count is at most 10 seconds old
            await other.put(make_record("r4"), b"x" * 2000)

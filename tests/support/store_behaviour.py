"""What every backend and every store of saved states must do; one suite, each backend runs it."""

from __future__ import annotations

import asyncio

import pytest
from state_stores import Clock, make_record, store_on

from rwkv_server.states.errors import (
    SessionConflict,
    StateCorrupt,
    StateExists,
    StateExpired,
    StateLost,
    StateNotFound,
    StateQuota,
    StateStoreUnavailable,
)
from rwkv_server.states.store import layout
from rwkv_server.states.store.blobs import BlobExists, BlobMissing, Blobs
from rwkv_server.states.store.heads import Head
from rwkv_server.states.store.states import StateStore

STRANGE = ["a.json", "a", "a.exp", "A:b_c-d", "ü", "x" * 128, ":" * 100, "a.exp.1"]


class BlobsBehaviour:
    """Of a backend; a subclass has the fixture `blobs`."""

    async def test_a_blob_is_created_read_listed_and_deleted(self, blobs: Blobs) -> None:
        await blobs.create("a/b/one", b"1")
        await blobs.create("a/b/two", b"")
        await blobs.create("a/c", b"333")
        assert await blobs.get("a/b/one") == b"1"
        assert await blobs.get("a/b/two") == b""
        assert [(b.key, b.size) for b in await blobs.list("a")] == [
            ("a/b/one", 1),
            ("a/b/two", 0),
            ("a/c", 3),
        ]
        assert [b.key for b in await blobs.list("")] == ["a/b/one", "a/b/two", "a/c"]
        await blobs.delete("a/b/one")
        with pytest.raises(BlobMissing):
            await blobs.get("a/b/one")
        assert [b.key for b in await blobs.list("a/b")] == ["a/b/two"]

    async def test_a_key_is_created_once(self, blobs: Blobs) -> None:
        await blobs.create("k", b"first")
        with pytest.raises(BlobExists):
            await blobs.create("k", b"second")
        assert await blobs.get("k") == b"first"
        await blobs.delete("k")
        await blobs.create("k", b"third")
        assert await blobs.get("k") == b"third"

    async def test_of_many_writers_one_wins(self, blobs: Blobs) -> None:
        async def write(number: int) -> bool:
            try:
                await blobs.create("race/one", str(number).encode())
            except BlobExists:
                return False
            return True

        won = await asyncio.gather(*map(write, range(16)))
        assert sum(won) == 1
        assert await blobs.get("race/one") == str(won.index(True)).encode()

    async def test_what_is_missing(self, blobs: Blobs) -> None:
        assert list(await blobs.list("nothing/here")) == []
        await blobs.delete("nothing/here")
        with pytest.raises(BlobMissing):
            await blobs.get("nothing/here")

    async def test_a_folder_isnt_a_beginning_of_a_name(self, blobs: Blobs) -> None:
        await blobs.create("ab/c", b"")
        await blobs.create("abc", b"")
        assert [b.key for b in await blobs.list("ab")] == ["ab/c"]
        assert list(await blobs.list("a")) == []

    async def test_megabytes_come_back(self, blobs: Blobs) -> None:
        content = bytes(range(256)) * 12_000
        await blobs.create("big", content)
        assert await blobs.get("big") == content

    async def test_nothing_is_left_to_clean(self, blobs: Blobs) -> None:
        await blobs.create("k", b"1")
        with pytest.raises(BlobExists):
            await blobs.create("k", b"1")
        assert await blobs.clean(before=1e11) == 0
        assert await blobs.get("k") == b"1"


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


class HeadsBehaviour:
    """Of sessions' logs, their deletion and the sweep; with the fixtures `blobs` and `clock`."""

    @pytest.fixture
    def store(self, blobs: Blobs, clock: Clock) -> StateStore:
        return store_on(blobs, clock)

    async def turn(self, store: StateStore, clock: Clock, ref: str, session: str = "s") -> None:
        head = await store.head("default", session)
        claim = await store.claim("default", session, head, clock.now + 60)
        await store.put(make_record(ref, session=session), ref.encode())
        await store.end(claim, ref)

    async def test_a_session_goes_on(self, store: StateStore, clock: Clock) -> None:
        assert await store.head("default", "s") is None
        for number in range(1, 6):
            await self.turn(store, clock, f"r{number}")
            assert await store.head("default", "s") == Head(number, f"r{number}", False)
        assert await store.head("other", "s") is None
        assert await store.head("default", "t") is None

    async def test_of_two_turns_the_first_wins(self, store: StateStore, clock: Clock) -> None:
        await self.turn(store, clock, "r1")
        head = await store.head("default", "s")
        claim = await store.claim("default", "s", head, clock.now + 60)
        with pytest.raises(SessionConflict) as refused:
            await store.claim("default", "s", head, clock.now + 60)
        assert refused.value.retry_after_s == 60
        assert await store.head("default", "s") == Head(1, "r1", True)
        await store.end(claim, "r2")
        with pytest.raises(SessionConflict, match="r2"):
            await store.claim("default", "s", head, clock.now + 60)

    async def test_of_many_turns_one_wins(self, blobs: Blobs, clock: Clock) -> None:
        stores = [store_on(blobs, clock, ordinal=seed, seed=seed) for seed in range(8)]

        async def begin(store: StateStore, head: Head | None) -> bool:
            try:
                claim = await store.claim("default", "s", head, clock.now + 60)
            except SessionConflict:
                return False
            await store.end(claim, "r")
            return True

        head = None
        for _ in range(4):
            won = await asyncio.gather(*(begin(store, head) for store in stores))
            assert sum(won) == 1
            head = await stores[0].head("default", "s")

    async def test_an_aborted_turn_leaves_the_head(self, store: StateStore, clock: Clock) -> None:
        await self.turn(store, clock, "r1")
        head = await store.head("default", "s")
        for _ in range(3):
            claim = await store.claim("default", "s", head, clock.now + 60)
            await store.end(claim, None)
            await store.end(claim, None)
            assert await store.head("default", "s") == head
        await self.turn(store, clock, "r2")
        assert await store.head("default", "s") == Head(2, "r2", False)

    async def test_an_aborted_opening_opens_nothing(self, store: StateStore, clock: Clock) -> None:
        await store.end(await store.claim("default", "s", None, clock.now + 60), None)
        assert await store.head("default", "s") is None
        await self.turn(store, clock, "r1")
        assert await store.head("default", "s") == Head(1, "r1", False)

    async def test_a_dead_owner_is_replaced_after_its_deadline(
        self, store: StateStore, clock: Clock
    ) -> None:
        await self.turn(store, clock, "r1")
        head = await store.head("default", "s")
        dead = await store.claim("default", "s", head, clock.now + 60)
        clock.now += 61
        with pytest.raises(SessionConflict):  # two clocks may differ
            await store.claim("default", "s", head, clock.now + 60)
        clock.now += 10
        claim = await store.claim("default", "s", head, clock.now + 60)
        with pytest.raises(SessionConflict, match="deadline"):
            await store.end(dead, "late")
        await store.end(claim, "r2")
        assert await store.head("default", "s") == Head(2, "r2", False)

    async def test_a_killed_engine_is_replaced_at_once_by_its_next_process(
        self, blobs: Blobs, clock: Clock
    ) -> None:
        killed, after, other = (
            store_on(blobs, clock, ordinal=ordinal, seed=seed)
            for ordinal, seed in ((2, 1), (2, 2), (3, 3))
        )
        claim = await killed.claim("default", "s", None, clock.now + 60)
        with pytest.raises(SessionConflict):
            await other.claim("default", "s", None, clock.now + 60)
        await after.end(await after.claim("default", "s", None, clock.now + 60), "r1")
        with pytest.raises(SessionConflict):
            await killed.end(claim, "r0")
        assert await other.head("default", "s") == Head(1, "r1", False)

    async def test_a_turn_of_another_engine_outlives_the_one_with_the_log(
        self, blobs: Blobs, clock: Clock
    ) -> None:
        killed, after = (store_on(blobs, clock, ordinal=2, seed=seed) for seed in (1, 2))
        claim = await killed.claim("default", "s", None, clock.now + 60, own=False)
        with pytest.raises(SessionConflict):
            await after.claim("default", "s", None, clock.now + 60)
        await after.end(claim, "r1")
        assert await after.head("default", "s") == Head(1, "r1", False)

    async def test_a_late_owner_may_still_end(self, store: StateStore, clock: Clock) -> None:
        claim = await store.claim("default", "s", None, clock.now + 60)
        clock.now += 3600
        await store.end(claim, "r1")
        await store.end(claim, "r1")
        assert await store.head("default", "s") == Head(1, "r1", False)

    async def test_a_session_is_forgotten(self, store: StateStore, clock: Clock) -> None:
        await self.turn(store, clock, "r1")
        await self.turn(store, clock, "r2")
        await self.turn(store, clock, "o1", "other")
        assert await store.forget_session("default", "s") == 2
        assert await store.head("default", "s") is None
        page = await store.page("default", None, None, 9)
        assert [record.ref for record in page.records] == ["o1"]
        await self.turn(store, clock, "r3")
        assert (await store.head("default", "s")) == Head(4, "r3", False)
        assert await store.forget_session("default", "nothing") == 0
        assert list(await store.blobs.list(layout.FORGET)) == []

    async def test_a_turn_under_way_keeps_its_session(
        self, store: StateStore, clock: Clock
    ) -> None:
        await self.turn(store, clock, "r1")
        claim = await store.claim("default", "s", await store.head("default", "s"), clock.now + 60)
        with pytest.raises(SessionConflict):
            await store.forget_session("default", "s")
        await store.end(claim, None)
        assert await store.head("default", "s") == Head(1, "r1", False)
        assert (await store.get("default", "r1")).session == "s"

    async def test_a_tenant_is_forgotten(self, store: StateStore, clock: Clock) -> None:
        await self.turn(store, clock, "r1")
        await self.turn(store, clock, "o1", "other")
        await store.put(make_record("alone"), b"")
        await store.put(make_record("r1", "else"), b"")
        clock.now += 5
        assert await store.forget_tenant("default") == 3
        keys = [blob.key for blob in await store.blobs.list("")]
        assert keys[0] == layout.EPOCH and {key.split("/")[0] for key in keys[1:]} == {"else"}

    async def test_a_damaged_record_holds_no_deletion_up(
        self, store: StateStore, clock: Clock
    ) -> None:
        await self.turn(store, clock, "r1")
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
            await self.turn(store, clock, f"r{number}")
        await store.sweep(clock.now)
        assert await store.head("default", "s") == Head(8, "r8", False)
        assert len(await store.blobs.list(layout.heads("default", "s"))) == 4
        await self.turn(store, clock, "r9")

    async def test_old_sessions_without_a_state_go(self, store: StateStore, clock: Clock) -> None:
        await self.turn(store, clock, "r1")
        await self.turn(store, clock, "l1", "lasting")
        await store.delete("default", "r1")
        clock.now += 8 * 86400
        await store.sweep(clock.now)
        assert await store.head("default", "s") is None
        clock.now += 8 * 86400
        await store.sweep(clock.now)
        assert list(await store.blobs.list(layout.heads("default", "s"))) == []
        assert await store.head("default", "lasting") == Head(1, "l1", False)
        await self.turn(store, clock, "r2")

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

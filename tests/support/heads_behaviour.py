"""What every store must do with sessions' logs; one suite, run on each backend."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from state_stores import Clock, store_on, take_turn

from rwkv_server.states.errors import SessionConflict
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.heads import Head
from rwkv_server.states.store.states import StateStore


def killed_after_other(blobs: Blobs, clock: Clock) -> Iterator[StateStore]:
    """Stores of an engine's process, of its next one, and of another engine."""
    for ordinal, seed in ((2, 1), (2, 2), (3, 3)):
        yield store_on(blobs, clock, ordinal=ordinal, seed=seed)


class HeadsBehaviour:
    """Of sessions' logs; a subclass has the fixtures `blobs` and `clock`."""

    @pytest.fixture
    def store(self, blobs: Blobs, clock: Clock) -> StateStore:
        return store_on(blobs, clock)

    async def test_a_session_goes_on(self, store: StateStore, clock: Clock) -> None:
        assert await store.head("default", "s") is None
        for number in range(1, 6):
            await take_turn(store, clock, f"r{number}")
            assert await store.head("default", "s") == Head(number, f"r{number}", False)
        assert await store.head("other", "s") is None
        assert await store.head("default", "t") is None

    async def test_of_two_turns_the_first_wins(self, store: StateStore, clock: Clock) -> None:
        await take_turn(store, clock, "r1")
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
        await take_turn(store, clock, "r1")
        head = await store.head("default", "s")
        for _ in range(3):
            claim = await store.claim("default", "s", head, clock.now + 60)
            await store.end(claim, None)
            await store.end(claim, None)
            assert await store.head("default", "s") == head
        await take_turn(store, clock, "r2")
        assert await store.head("default", "s") == Head(2, "r2", False)

    async def test_an_aborted_opening_opens_nothing(self, store: StateStore, clock: Clock) -> None:
        await store.end(await store.claim("default", "s", None, clock.now + 60), None)
        assert await store.head("default", "s") is None
        await take_turn(store, clock, "r1")
        assert await store.head("default", "s") == Head(1, "r1", False)

    async def test_a_dead_owner_is_replaced_after_its_deadline(
        self, store: StateStore, clock: Clock
    ) -> None:
        await take_turn(store, clock, "r1")
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
        killed, after, other = killed_after_other(blobs, clock)
        claim = await killed.claim("default", "s", None, clock.now + 60)
        with pytest.raises(SessionConflict):
            await other.claim("default", "s", None, clock.now + 60)
        await after.end(await after.claim("default", "s", None, clock.now + 60), "r1")
        with pytest.raises(SessionConflict):
            await killed.end(claim, "r0")
        assert await other.head("default", "s") == Head(1, "r1", False)

    async def test_a_session_isnt_busy_for_a_turn_that_is_dead(
        self, blobs: Blobs, clock: Clock
    ) -> None:
        killed, after, other = killed_after_other(blobs, clock)
        await take_turn(killed, clock, "r1")
        head = await killed.head("default", "s")
        await killed.claim("default", "s", head, clock.now + 60)
        for store, busy in ((killed, True), (after, False), (other, True)):
            assert await store.head("default", "s") == Head(1, "r1", busy)
        clock.now += 70
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

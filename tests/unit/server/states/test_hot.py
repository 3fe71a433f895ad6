from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rwkv_server.states.errors import StateBusy
from rwkv_server.states.hot import HotTier, HotUse
from rwkv_server.states.layout import StateLayout, TensorSpec
from rwkv_server.states.slots import SlotError, SlotFile

LAYOUT = StateLayout((TensorSpec("layers.0.wkv", (4,), "float32", 0),), "float32", 1)


@pytest.fixture
def hot(tmp_path: Path) -> Iterator[HotTier]:
    tier = HotTier(tmp_path / "hot", LAYOUT, 3)
    yield tier
    tier.close()


async def fill(hot: HotTier, *keys: str) -> None:
    for key in keys:
        (slot,) = await hot.acquire(1, 0)
        slot.view[:] = key.encode().ljust(16)
        hot.keep(key, slot)


async def test_what_is_kept_is_found_with_its_bytes(hot: HotTier) -> None:
    await fill(hot, "a", "b")
    slot = hot.pin("b")
    assert slot is not None and bytes(slot.view).strip() == b"b"
    assert hot.pin("c") is None
    assert hot.use == HotUse(free=1, kept=1, pinned=1)


async def test_the_longest_unused_goes_first(hot: HotTier) -> None:
    await fill(hot, "a", "b", "c")
    used = hot.pin("a")
    assert used is not None
    hot.unpin(used)
    await fill(hot, "d")
    assert [hot.pin(key) is not None for key in "abcd"] == [True, False, True, True]


async def test_what_is_pinned_stays(hot: HotTier) -> None:
    await fill(hot, "a", "b", "c")
    assert hot.pin("a") is not None
    await hot.acquire(2, 0)
    with pytest.raises(StateBusy, match="hotBytes larger") as busy:
        await hot.acquire(1, 0)
    assert busy.value.retry_after_s == 1
    assert hot.is_pinned("a") and hot.pin("b") is None


async def test_all_or_none(hot: HotTier) -> None:
    (slot,) = await hot.acquire(1, 0)
    with pytest.raises(StateBusy):
        await hot.acquire(3, 0)
    assert hot.use == HotUse(free=2, kept=0, pinned=1)
    hot.release(slot)
    assert len({s.index for s in await hot.acquire(3, 0)}) == 3


async def test_more_than_there_is_never_waits(hot: HotTier) -> None:
    with pytest.raises(StateBusy, match="4 states at once, and hotBytes has room for 3"):
        await hot.acquire(4, 3600)


async def test_who_came_first_is_served_first(hot: HotTier) -> None:
    slots = await hot.acquire(3, 0)
    order = []

    async def want(count: int) -> None:
        got = await hot.acquire(count, 10)
        order.append(count)
        for slot in got:
            hot.release(slot)

    async with asyncio.TaskGroup() as group:
        for count in (3, 1, 2):
            group.create_task(want(count))
            await asyncio.sleep(0)
        for slot in slots:
            hot.release(slot)
    assert order == [3, 1, 2]


async def test_a_slot_given_back_is_the_next_to_be_given_out(hot: HotTier) -> None:
    first, second = await hot.acquire(2, 0)
    for slot in (first, second):
        hot.release(slot)
    assert [slot.index for slot in await hot.acquire(2, 0)] == [second.index, first.index]


async def test_who_stops_waiting_leaves_nothing_behind(hot: HotTier) -> None:
    slots = await hot.acquire(3, 0)
    waiting = asyncio.create_task(hot.acquire(2, 10))
    await asyncio.sleep(0)
    for slot in slots:
        hot.release(slot)
    waiting.cancel()  # it has its slots by now, and nobody will use them
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert hot.use == HotUse(free=3, kept=0, pinned=0)


async def test_a_slot_is_as_old_as_its_last_pin(hot: HotTier) -> None:
    await fill(hot, "a")
    first, second = hot.pin("a"), hot.pin("a")
    assert first is second is not None
    hot.unpin(first)
    assert hot.is_pinned("a")
    hot.unpin(first)
    assert not hot.is_pinned("a")
    with pytest.raises(ValueError, match="isn't pinned"):
        hot.unpin(first)


async def test_a_key_that_is_there_keeps_its_slot(hot: HotTier) -> None:
    await fill(hot, "a", "a")
    assert hot.use == HotUse(free=2, kept=1, pinned=0)


async def test_one_slot_under_two_keys(hot: HotTier) -> None:
    await fill(hot, "ref")
    slot = hot.pin("ref")
    assert slot is not None
    hot.keep("prefix", slot)
    hot.drop("ref")
    assert hot.pin("ref") is None and hot.pin("prefix") is slot
    hot.unpin(slot)
    hot.drop("prefix")
    assert hot.use == HotUse(free=3, kept=0, pinned=0)


async def test_a_dropped_key_s_slot_is_free_after_its_last_reader(hot: HotTier) -> None:
    await fill(hot, "a")
    slot = hot.pin("a")
    assert slot is not None
    hot.drop("a")
    assert bytes(slot.view).strip() == b"a"
    assert hot.use.pinned == 1
    hot.unpin(slot)
    assert hot.use == HotUse(free=3, kept=0, pinned=0)


async def test_a_void_slot_loses_its_keys(hot: HotTier) -> None:
    await fill(hot, "a")
    slot = hot.pin("a")
    assert slot is not None
    hot.release(slot)
    assert hot.pin("a") is None


async def test_a_slot_that_a_late_worker_writes_goes_to_nobody(
    hot: HotTier, tmp_path: Path
) -> None:
    slots = await hot.acquire(3, 0)
    worker = SlotFile.open(tmp_path / "hot", LAYOUT.nbytes)
    with worker.hold(slots[0].lease):
        for slot in slots:
            hot.release(slot)
        assert slots[0].index not in {s.index for s in await hot.acquire(2, 0)}
        waiting = asyncio.create_task(hot.acquire(1, 10))
        await asyncio.sleep(0)
        assert not waiting.done()
    (last,) = await waiting
    assert last.index == slots[0].index
    with pytest.raises(SlotError), worker.hold(slots[0].lease):
        pass


async def test_the_demoted_goes_first_unless_it_is_used_again(hot: HotTier) -> None:
    await fill(hot, "a", "b", "c")
    for key in ("c", "b", "nobody's"):
        hot.demote(key)
    used = hot.pin("b")
    assert used is not None
    hot.demote("b")
    hot.unpin(used)
    await fill(hot, "d")
    assert [hot.pin(key) is not None for key in "abcd"] == [True, True, False, True]


async def test_a_free_slot_that_is_still_held_costs_another_its_content(hot: HotTier) -> None:
    """A thread that hangs in a volume may hold it for long: nobody waits for that."""
    (held,) = await hot.acquire(1, 0)
    with hot.hold(held):
        hot.release(held)
        await fill(hot, "a", "b")
        (taken,) = await hot.acquire(1, 0)
        assert taken.index != held.index
        assert not hot.has("a") and hot.has("b")

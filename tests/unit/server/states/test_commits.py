from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from rwkv_server.states import commits, content
from rwkv_server.states.errors import StateBusy, StateCorrupt, StateStoreUnavailable
from rwkv_server.states.held import Content
from rwkv_server.states.hot import HotTier, Slot
from rwkv_server.states.layout import StateLayout, TensorSpec
from rwkv_server.states.record import Fingerprint, Record

LAYOUT = StateLayout((TensorSpec("layers.0.wkv", (4,), "float32", 0),), "float32", 1)


def record(number: int) -> Record:
    return Record(
        ref=f"r{number}",
        parent=None,
        tenant="t",
        session=None,
        fingerprint=Fingerprint(model="m", tokenizer="t", layout=1, dtype="float32"),
        nbytes=0,
        sha256="",
        consumed_tokens=1,
        pending=(),
        finish_reason="stop",
        created_at=1.0,
        expires_at=None,
        epoch="",
    )


@pytest.fixture
def hot(tmp_path: Path) -> Iterator[HotTier]:
    made = HotTier(tmp_path / "slots", LAYOUT, 4 * commits.AT_ONCE)
    yield made
    made.close()


async def slot(hot: HotTier, number: int) -> Slot:
    (taken,) = await hot.acquire(1, 1)
    taken.view[:] = bytes([number] * LAYOUT.nbytes)
    return taken


class Store:
    """Takes each file when it may, and then fails or not."""

    def __init__(self) -> None:
        self.may = asyncio.Semaphore(0)
        self.failure: Exception | None = None
        self.begun: dict[str, bytes] = {}
        self.ended: list[str] = []

    async def put(self, record: Record, content: Content) -> Record:
        with content.hold() as pieces:
            self.begun[record.ref] = b"".join(pieces)
        assert len(self.begun[record.ref]) == content.nbytes
        await self.may.acquire()
        if self.failure is not None:
            raise self.failure
        self.ended.append(record.ref)
        return record


async def begin(
    store: Store, hot: HotTier, count: int, wait_s: float = 10
) -> tuple[commits.Commits, list[asyncio.Task[Record]]]:
    made = commits.Commits(cast(Any, store), hot, LAYOUT, wait_s)
    slots = [await slot(hot, n) for n in range(count)]
    return made, [asyncio.create_task(made.write(record(n), slots[n])) for n in range(count)]


async def until_begun(store: Store, count: int) -> None:
    while len(store.begun) < count:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)  # one more would have begun by now


async def test_the_first_are_committed_while_others_wait(hot: HotTier) -> None:
    store = Store()
    _, tasks = await begin(store, hot, commits.AT_ONCE + 3)
    await until_begun(store, commits.AT_ONCE)
    assert len(store.begun) == commits.AT_ONCE
    store.may.release()
    await until_begun(store, commits.AT_ONCE + 1)
    assert len(store.begun) == commits.AT_ONCE + 1 and len(store.ended) == 1
    for _ in tasks:
        store.may.release()
    assert [r.ref for r in await asyncio.gather(*tasks)] == [f"r{n}" for n in range(len(tasks))]
    for number in range(len(tasks)):
        into = memoryview(bytearray(LAYOUT.nbytes))
        told = content.from_safetensors(LAYOUT, store.begun[f"r{number}"], into)
        assert bytes(into) == bytes([number] * LAYOUT.nbytes)
        assert Record.model_validate_json(told[commits.RECORD_KEY]) == record(number)


async def test_who_waits_too_long_is_refused_and_takes_no_place(hot: HotTier) -> None:
    store = Store()
    made, tasks = await begin(store, hot, commits.AT_ONCE + 1, wait_s=0.05)
    with pytest.raises(StateStoreUnavailable, match="busy with other states") as refused:
        await tasks.pop()
    assert refused.value.retry_after_s == 1
    for _ in range(commits.AT_ONCE + 1):
        store.may.release()
    await asyncio.gather(*tasks)
    assert (await made.write(record(99), await slot(hot, 9))).ref == "r99"


async def test_a_place_is_free_again_after_a_failure(hot: HotTier) -> None:
    store = Store()
    store.failure = StateStoreUnavailable("down")
    made, tasks = await begin(store, hot, 2 * commits.AT_ONCE)
    for _ in range(len(tasks) + 1):
        store.may.release()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, StateStoreUnavailable) for error in found)
    store.failure = None
    assert (await made.write(record(99), await slot(hot, 9))).ref == "r99"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
async def test_what_no_engine_could_go_on_from_is_not_kept(hot: HotTier, value: float) -> None:
    store = Store()
    broken = await slot(hot, 0)
    broken.view[4:8] = struct.pack("=f", value)
    with pytest.raises(
        StateCorrupt, match=r"layers\.0\.wkv holds a value that is no finite number"
    ):
        await commits.Commits(cast(Any, store), hot, LAYOUT).write(record(0), broken)
    assert not store.begun


async def test_a_slot_that_is_being_written_is_given_to_nobody(hot: HotTier) -> None:
    """Not even when its turn was given up: who writes it can't be stopped."""
    held = await slot(hot, 7)
    written = commits.SlotContent(b"", held, LAYOUT, hot)
    with written.hold() as pieces:
        hot.release(held)
        taken = await hot.acquire(hot.count - 1, 1)
        with pytest.raises(StateBusy):
            await hot.acquire(1, 0)
        for other in taken:
            other.view[:] = bytes(LAYOUT.nbytes)
        assert b"".join(pieces) == bytes([7] * LAYOUT.nbytes)
    await hot.acquire(1, 1)
    with pytest.raises(StateStoreUnavailable, match="the snapshot is gone"), written.hold():
        pass

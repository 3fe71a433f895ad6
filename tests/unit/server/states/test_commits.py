from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rwkv_server.states import commits, content
from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.hot import Slot
from rwkv_server.states.layout import StateLayout, TensorSpec
from rwkv_server.states.record import Fingerprint, Record
from rwkv_server.states.slots import Lease

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


def slot(number: int) -> Slot:
    return Slot(Lease(number, 1), memoryview(bytearray([number] * LAYOUT.nbytes)))


class Store:
    """Takes each file when it may, and then fails or not."""

    def __init__(self) -> None:
        self.may = asyncio.Semaphore(0)
        self.failure: Exception | None = None
        self.begun: dict[str, bytes] = {}
        self.ended: list[str] = []

    async def put(self, record: Record, content: bytes) -> Record:
        self.begun[record.ref] = content
        await self.may.acquire()
        if self.failure is not None:
            raise self.failure
        self.ended.append(record.ref)
        return record


def begin(
    store: Store, count: int, wait_s: float = 10
) -> tuple[commits.Commits, list[asyncio.Task[Record]]]:
    made = commits.Commits(cast(Any, store), LAYOUT, wait_s)
    return made, [asyncio.create_task(made.write(record(n), slot(n))) for n in range(count)]


async def until_begun(store: Store, count: int) -> None:
    while len(store.begun) < count:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)  # one more would have begun by now


async def test_the_first_are_committed_while_others_wait() -> None:
    store = Store()
    _, tasks = begin(store, commits.AT_ONCE + 3)
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
        assert bytes(into) == bytes(slot(number).view)
        assert Record.model_validate_json(told[commits.RECORD_KEY]) == record(number)


async def test_who_waits_too_long_is_refused_and_takes_no_place() -> None:
    store = Store()
    made, tasks = begin(store, commits.AT_ONCE + 1, wait_s=0.05)
    with pytest.raises(StateStoreUnavailable, match="busy with other states") as refused:
        await tasks.pop()
    assert refused.value.retry_after_s == 1
    for _ in range(commits.AT_ONCE + 1):
        store.may.release()
    await asyncio.gather(*tasks)
    assert (await made.write(record(99), slot(9))).ref == "r99"


async def test_a_place_is_free_again_after_a_failure() -> None:
    store = Store()
    store.failure = StateStoreUnavailable("down")
    made, tasks = begin(store, 2 * commits.AT_ONCE)
    for _ in range(len(tasks) + 1):
        store.may.release()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, StateStoreUnavailable) for error in found)
    store.failure = None
    assert (await made.write(record(99), slot(9))).ref == "r99"

import asyncio

import pytest

from rwkv_operator.handlers.queue import WorkQueue
from rwkv_operator.metrics import Metrics

A, B = ("talk", "a"), ("talk", "b")


@pytest.fixture
def queue() -> WorkQueue:
    return WorkQueue(Metrics())


async def test_many_events_are_one_look(queue: WorkQueue) -> None:
    for _ in range(3):
        queue.add(A)
    queue.add(B)
    assert [await queue.take(), await queue.take()] == [A, B]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.take(), 0.01)


async def test_what_the_user_has_changed_comes_first(queue: WorkQueue) -> None:
    queue.add(A)
    queue.add(B, urgent=True)
    assert await queue.take() == B


async def test_an_event_during_a_look_leads_to_another_one_afterwards(queue: WorkQueue) -> None:
    queue.add(A)
    assert await queue.take() == A
    queue.add(A)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.take(), 0.01)
    queue.done(A)
    assert await queue.take() == A


async def test_the_sooner_of_two_later_looks_counts(queue: WorkQueue) -> None:
    queue.add_later(A, 100)
    queue.add_later(A, 0.01)
    queue.add_later(A, 50)
    assert await asyncio.wait_for(queue.take(), 2) == A
    queue.done(A)
    assert not queue.knows(A)


async def test_an_event_makes_a_later_look_unnecessary(queue: WorkQueue) -> None:
    queue.add_later(A, 0.01)
    queue.add(A)
    assert await queue.take() == A
    queue.done(A)
    await asyncio.sleep(0.03)
    assert not queue.knows(A)


async def test_a_waiting_worker_is_woken(queue: WorkQueue) -> None:
    taken = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.add(A)
    assert await asyncio.wait_for(taken, 2) == A


async def test_each_of_several_workers_gets_its_own_key(queue: WorkQueue) -> None:
    workers = [asyncio.ensure_future(queue.take()) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add(A)
    queue.add(B)
    assert sorted(await asyncio.wait_for(asyncio.gather(*workers), 2)) == [A, B]


async def test_a_key_is_known_while_it_is_due_planned_or_worked_on(queue: WorkQueue) -> None:
    assert not queue.knows(A)
    queue.add_later(A, 100)
    assert queue.knows(A)
    queue.add(A)
    assert queue.knows(A)
    await queue.take()
    assert queue.knows(A)
    queue.done(A)
    assert not queue.knows(A)


async def test_nothing_is_left_after_the_end(queue: WorkQueue) -> None:
    queue.add_later(A, 0.01)
    queue.close()
    await asyncio.sleep(0.03)
    assert not queue.knows(A)

from __future__ import annotations

import asyncio

import pytest

from rwkv_server.parent.drain import Drainer
from rwkv_server.parent.engine_http import Flushed, FlushFailed, Load, parse_load
from rwkv_server.parent.status import Status
from rwkv_server.settings import Drain

BOUNDS = Drain(routerCheckIntervalSeconds=2, shutdownTimeoutSeconds=5, flushTimeoutSeconds=7)


class World:
    """A clock that moves only when somebody sleeps, and a list of loads to come."""

    def __init__(self, monkeypatch, loads, served=True):
        self.now = 0.0
        self.loads = loads
        self.asked_at = []
        self.status = Status(clock=lambda: self.now, healthy=served, served=served)
        self.written = Flushed(flushed=0, failed=0, onlyHere=0)
        self.flushed_at = []
        self.drainer = Drainer(BOUNDS, self.status, self.load, self.flush)
        real_sleep = asyncio.sleep

        async def sleep(seconds):
            self.now += seconds
            await real_sleep(0)

        monkeypatch.setattr("rwkv_server.parent.drain.asyncio.sleep", sleep)

    async def load(self):
        self.asked_at.append(self.now)
        count = self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]
        return None if count is None else Load(0, 0, count)

    async def flush(self, timeout_s):
        assert timeout_s == BOUNDS.flush_timeout_seconds
        self.flushed_at.append(len(self.asked_at))
        if isinstance(self.written, Exception):
            raise self.written
        return self.written


async def test_the_router_gets_three_checks_even_when_nothing_runs(monkeypatch):
    world = World(monkeypatch, [0])
    await world.drainer.finish()
    assert world.asked_at == [6.0]
    assert world.status.drained
    assert not world.status.ready


async def test_it_waits_until_every_answer_is_complete(monkeypatch):
    world = World(monkeypatch, [2, None, 1, 0])
    await world.drainer.finish()
    assert len(world.asked_at) == 4
    assert world.flushed_at == [4], "states are written once, when no answer can add another"
    assert world.status.progress.message == "every answer is complete; 0 states written"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (Flushed(flushed=3, failed=0, onlyHere=0), "3 states written"),
        (
            Flushed(flushed=1, failed=2, onlyHere=9),
            "1 states written, 2 LOST, the store took them not, "
            "9 have no copy outside this pod's volume",
        ),
        (FlushFailed("not done within 7 s"), "states may be lost: not done within 7 s"),
    ],
)
async def test_what_became_of_states_is_told(monkeypatch, caplog, written, told):
    world = World(monkeypatch, [0])
    world.written = written
    with caplog.at_level("INFO"):
        await world.drainer.finish()
    assert world.status.progress.message == f"every answer is complete; {told}"
    assert told in caplog.text.replace("that were written behind ", "")
    assert world.status.drained


async def test_states_are_written_also_when_answers_take_too_long(monkeypatch):
    world = World(monkeypatch, [3])
    await world.drainer.finish()
    assert world.status.progress.message.endswith("in flight; 0 states written")


async def test_it_gives_up_after_the_timeout_and_says_so(monkeypatch, caplog):
    world = World(monkeypatch, [3])
    await world.drainer.finish()
    assert world.now == pytest.approx(6 + 5, abs=0.3)
    assert "ran out of time with 3 requests in flight" in caplog.text
    assert world.status.drained


async def test_a_dead_child_ends_it(monkeypatch):
    world = World(monkeypatch, [1])
    world.status.child_died = True
    await world.drainer.finish()
    assert (world.asked_at, world.flushed_at) == ([], [])


async def test_before_the_first_ready_there_is_nothing_to_wait_for(monkeypatch):
    world = World(monkeypatch, [1], served=False)
    await world.drainer.finish()
    assert (world.now, world.status.drained) == (0.0, True)
    assert world.flushed_at == []


async def test_a_child_that_is_silent_just_now_is_waited_for_too(monkeypatch):
    world = World(monkeypatch, [None, 2, 0])
    world.status.healthy = False
    await world.drainer.finish()
    assert len(world.asked_at) == 3
    assert world.asked_at[0] == 6.0


async def test_a_child_that_does_not_tell_its_requests_may_have_some(monkeypatch, caplog):
    world = World(monkeypatch, [0])

    async def load():
        return parse_load("vllm:num_requests_running 0.0\n")

    world.drainer = Drainer(BOUNDS, world.status, load, world.flush)
    await world.drainer.finish()
    assert "ran out of time with an unknown number of requests in flight" in caplog.text


async def test_it_runs_once(monkeypatch):
    world = World(monkeypatch, [0])
    world.drainer.start()
    world.drainer.start()
    await world.drainer.finish()
    await world.drainer.finish()
    assert world.asked_at == [6.0]

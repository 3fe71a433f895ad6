from __future__ import annotations

import asyncio
import contextlib

import engine_config
import pytest

from rwkv_server import settings
from rwkv_server.errors import EngineFailed
from rwkv_server.metrics import Metrics
from rwkv_server.parent import serve
from rwkv_server.parent.engine_http import Health
from rwkv_server.parent.status import Status


@pytest.fixture
def parent(tmp_path, monkeypatch):
    """A parent without a port, that a signal has asked to end."""

    @contextlib.asynccontextmanager
    async def nothing(app, listener):
        yield

    def asked():
        stop = asyncio.Event()
        stop.set()
        return stop

    monkeypatch.setattr(serve, "_serving", nothing)
    monkeypatch.setattr(serve, "_stop_event", asked)
    monkeypatch.setattr(serve, "open_socket", lambda port: None)
    config = settings.read_settings(engine_config.write(tmp_path / "engine.yaml"))
    return serve.Parent(config, "key", Status(), Metrics())


@pytest.mark.parametrize("served", [True, False])
async def test_a_child_that_dies_during_a_signals_drain_is_told(parent, monkeypatch, served):
    parent._status.served = served

    async def live():
        while not parent._status.draining:
            await asyncio.sleep(0)
        parent._status.child_died = True
        await asyncio.sleep(0.05)  # what else it watched ends meanwhile
        raise EngineFailed("the engine process ended")

    monkeypatch.setattr(parent, "_live", live)
    with pytest.raises(EngineFailed, match="process ended"):
        await parent.run()


async def test_a_drain_that_ends_well_ends_the_life(parent, monkeypatch):
    monkeypatch.setattr(parent, "_live", asyncio.Event().wait)
    await parent.run()
    assert parent._status.drained


async def test_that_it_served_is_not_forgotten(parent, monkeypatch):
    answers = iter([Health.OK, Health.BROKEN])

    async def health():
        answer = next(answers, None)
        if answer is None:
            raise asyncio.CancelledError
        return answer

    monkeypatch.setattr(serve, "HEALTH_INTERVAL_S", 0)
    monkeypatch.setattr(parent._engine, "health", health)
    with pytest.raises(asyncio.CancelledError):
        await parent._watch_health()
    assert (parent._status.healthy, parent._status.served) == (False, True)

from __future__ import annotations

import asyncio
import logging

import pytest
import state_stores

from rwkv_server.states import counters, keeper
from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.peers import Addresses


def held():
    return counters.held._value.get(), counters.held_bytes._value.get()


def of_engine(ordinal, there, *, shared=True, store=None):
    """The keeper of an engine, and the URLs that it has asked."""
    asked = []

    async def is_there(url):
        asked.append(url)
        return url in there

    clock = state_stores.Clock()
    if store is None:
        store = state_stores.store_on(state_stores.memory(), clock, shared=shared, ordinal=ordinal)
    addresses = Addresses(lambda number: f"http://engine-{number}:8000", 4, ordinal)
    return keeper.Keeper(store, addresses, clock, is_there), store, clock, asked


async def saved(store, ref):
    await store.open()
    return await store.put(state_stores.make_record(ref), b"x" * 100)


@pytest.mark.parametrize(
    ("ordinal", "there", "shared", "counts"),
    [
        (0, {"http://engine-1:8000"}, True, True),
        (2, {"http://engine-3:8000"}, True, True),
        (2, {"http://engine-1:8000"}, True, False),
        (2, {"http://engine-0:8000"}, False, True),
    ],
)
async def test_the_lowest_engine_that_is_there_keeps_a_shared_store(ordinal, there, shared, counts):
    own, store, _, asked = of_engine(ordinal, there, shared=shared)
    await saved(store, "a")
    counters.held.set(77)
    await own.look()
    states, nbytes = held()
    assert (states, nbytes >= 100) == ((1, True) if counts else (0, False))
    assert asked == [f"http://engine-{number}:8000" for number in range(ordinal) if shared]


async def test_states_whose_time_is_over_go_and_are_counted():
    own, store, clock, _ = of_engine(0, set())
    await store.open()
    await store.put(state_stores.make_record("a", expires_at=clock.now + 5), b"x")
    before = counters.expired._value.get()
    await own.look()
    assert (held()[0], counters.expired._value.get()) == (1, before)
    clock.now += 3600
    await own.look()
    assert (held()[0], counters.expired._value.get()) == (0, before + 1)


async def test_a_store_that_fails_is_tried_again(monkeypatch, caplog):
    class Broken:
        shared = False
        tries = 0

        async def sweep(self, now):
            self.tries += 1
            if self.tries == 1:
                raise StateStoreUnavailable("the bucket is away")
            if self.tries == 2:
                raise RuntimeError("a bug")
            await asyncio.Event().wait()

    broken = Broken()
    own, *_ = of_engine(0, set(), store=broken)
    monkeypatch.setattr(keeper, "INTERVAL_S", 0)
    with caplog.at_level(logging.WARNING):
        own.start()
        while broken.tries < 3:
            await asyncio.sleep(0)
    await own.close()
    assert "the bucket is away" in caplog.text and "a bug" in caplog.text


async def test_an_engine_is_there_when_it_accepts_connections():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await keeper.listens(f"http://127.0.0.1:{port}")
    server.close()
    await server.wait_closed()
    assert not await keeper.listens(f"http://127.0.0.1:{port}")
    assert not await keeper.listens("http://no-such-host.invalid:8000")

"""What is erased while turns are under way stays erased, and what a drain tells of failures."""

from __future__ import annotations

import asyncio

import paper_server
import pytest

OF_ALL = "/v1/states?all=true"


@pytest.fixture
async def server(tmp_path):
    async with paper_server.serve(tmp_path, store="persistentVolumeClaim") as server:
        yield server


async def running(server, *requests):
    """Requests that the engine has, and won't answer yet."""
    server.engine.gate = asyncio.Event()
    before = len(server.engine.seen)
    tasks = [asyncio.create_task(request) for request in requests]
    for _ in range(2000):
        if len(server.engine.seen) == before + len(requests):
            break
        await asyncio.sleep(0.001)
    return tasks


async def listed(server):
    return (await server.client.get("/v1/states")).json()["data"]


async def test_turns_under_way_are_not_kept(server):
    session = {"session_id": "s", "max_tokens": 3}
    first = await server.complete("a", {"session": "new"}, **session)
    ref = first["state"]["ref"]
    tasks = await running(
        server,
        server.complete("b", {"session": True}, **session),
        server.complete("b", {"ref": ref, "save": "mine"}, max_tokens=3),
        server.complete("b", {"save": True}, max_tokens=3),
        server.post("/v1/responses", input="b", max_tokens=3),
    )
    assert (await server.client.delete(OF_ALL)).json()["states"] == 1
    server.engine.gate.set()
    *turns, response = await asyncio.gather(*tasks)
    for answer in turns:
        assert answer["state"]["error"]["code"] == "state_not_found"
        assert "erased" in answer["state"]["error"]["message"]
        assert answer["choices"][0]["text"]
    assert response.json()["store"] is False
    assert await listed(server) == []
    assert (await server.client.get("/v1/sessions/s")).status_code == 404
    again = await server.complete("c", {"session": "new"}, **session)
    assert [state["ref"] for state in await listed(server)] == [again["state"]["ref"]]


async def test_another_tenants_turn_is_kept(server):
    body = {"prompt": "b", "max_tokens": 3, "state": {"save": True}}
    bob = {"x-rwkv-tenant": "bob"}
    (task,) = await running(server, server.post("/v1/completions", headers=bob, **body))
    assert (await server.client.delete(OF_ALL)).json()["states"] == 0
    server.engine.gate.set()
    assert (await task).json()["state"]["ref"]


async def test_an_erasure_during_the_commit_takes_it_with_it(server, monkeypatch):
    store = server.runtime.store
    put = store.put

    async def put_late(record, content):
        done = await put(record, content)
        server.runtime.turns.erase(record.tenant)
        return done

    monkeypatch.setattr(store, "put", put_late)
    answer = await server.complete("b", {"save": True}, max_tokens=3)
    assert answer["state"]["error"]["code"] == "state_not_found"
    assert await listed(server) == []


async def test_a_drain_counts_no_refusals_as_lost(server):
    tasks = await running(
        server, *(server.complete("b", {"save": "mine"}, max_tokens=3) for _ in range(4))
    )
    server.engine.gate.set()
    answers = await asyncio.gather(*tasks)
    assert sum("error" in answer["state"] for answer in answers) == 3
    assert server.runtime.turns.failed == 0

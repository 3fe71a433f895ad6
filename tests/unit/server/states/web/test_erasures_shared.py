"""Two engines of one store: what one erases stays erased, whatever is under way at the other."""

from __future__ import annotations

import asyncio
import socket

import httpx
import paper_server
import pytest

OF_ALL = "/v1/states?all=true"
OPTIONS = {
    "store": "persistentVolumeClaim",
    "automaticReuse": "Durable",
    "peers": {"url": "http://127.0.0.{ordinal}", "ordinals": 2},
}


REFUSED = ConnectionRefusedError(111, "refused")


class BothRefused(Exception):
    """As an ExceptionGroup, which Python 3.10 doesn't have."""

    exceptions = (REFUSED, ConnectionRefusedError(111, "refused"))


@pytest.fixture
async def pods(tmp_path):
    async with paper_server.serve_all(tmp_path, tmp_path, **OPTIONS) as (pods, wire):
        for pod in pods:
            await pod.client.get("/v1/states")
        yield pods, wire


async def running(pod, *requests):
    """Requests that a pod's engine has, and won't answer yet."""
    pod.engine.gate = asyncio.Event()
    before = len(pod.engine.seen)
    tasks = [asyncio.create_task(request) for request in requests]
    while len(pod.engine.seen) < before + len(requests):
        await asyncio.sleep(0.001)
    return tasks


async def listed(pod):
    await pod.runtime.turns.settle_all("default")
    await pod.runtime.behind.flush()
    return (await pod.client.get("/v1/states")).json()["data"]


async def test_turns_of_another_engine_are_not_kept(pods):
    (here, there), _ = pods
    first = await here.complete("a", {"session": "new"}, session_id="s", max_tokens=3)
    tasks = await running(
        there,
        there.complete("b", {"session": True}, session_id="s", max_tokens=3),
        there.complete("b", {"ref": first["state"]["ref"], "save": "mine"}, max_tokens=3),
        there.chat("a secret", max_tokens=3),
    )
    assert (await here.client.delete(OF_ALL)).json()["states"] == 1
    there.engine.gate.set()
    *turns, _ = await asyncio.gather(*tasks)
    assert [turn["state"]["error"]["code"] for turn in turns] == ["state_not_found"] * 2
    assert await listed(there) == []
    assert (await here.client.get("/v1/sessions/s")).status_code == 404


async def test_memory_of_another_engine_keeps_nothing(pods):
    (here, there), _ = pods
    await there.chat("a secret, told at length", max_tokens=3)
    assert len(await listed(there)) == 1
    await here.client.delete(OF_ALL)
    assert await listed(there) == []
    assert there.runtime.hot.use.kept == 0


async def test_what_was_made_by_a_clock_that_is_ahead_goes(pods, monkeypatch):
    (here, there), _ = pods
    clock = there.runtime.turns._clock
    monkeypatch.setattr(there.runtime.turns, "_clock", lambda: clock() + 3)
    await there.complete("b", {"save": "mine"}, max_tokens=3)
    assert (await here.client.delete(OF_ALL)).json()["states"] == 1
    assert await listed(here) == []


async def test_an_engine_that_cant_be_told_is_said(pods):
    (here, _), wire = pods
    await here.complete("a", {"save": "mine"}, max_tokens=3)
    away = wire.pop(1)
    answer = await here.client.delete(OF_ALL)
    assert answer.status_code == 503
    told = answer.json()["error"]["message"]
    assert "all is erased" in told and told.endswith("send the DELETE again")
    assert "is safe" not in told
    assert await listed(here) == []
    wire[1] = away
    assert (await here.client.delete(OF_ALL)).json()["states"] == 0


@pytest.mark.parametrize(
    "cause",
    [REFUSED, BothRefused(), socket.gaierror(socket.EAI_NONAME, "no name")],
    ids=["not running", "at neither of two addresses", "not there"],
)
async def test_an_engine_that_doesnt_run_has_nothing_under_way(pods, cause):
    (here, _), wire = pods

    class Away:
        async def request(self, method, path, **more):
            raise httpx.ConnectError("away") from cause

    wire[1] = Away()
    answer = await here.client.delete(OF_ALL)
    assert answer.status_code == 200, answer.text

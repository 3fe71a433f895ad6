"""Stores that refuse, tenants that hold too much, memory that is in use."""

from __future__ import annotations

import asyncio
import contextlib
import time

import paper_server
import pytest

from rwkv_server.states import room
from rwkv_server.states.errors import StateStoreFull, StateStoreUnavailable


@pytest.fixture
async def server(tmp_path):
    async with paper_server.serve(tmp_path) as server:
        yield server


def told(answer):
    return answer["state"]


def code_of(answer):
    return answer.status_code, answer.json()["error"]["code"]


@pytest.fixture
def broken(server, monkeypatch):
    """The store takes nothing any more."""

    async def fail(*anything):
        raise StateStoreFull("the disk is full")

    monkeypatch.setattr(server.runtime.store, "put", fail)


async def test_a_text_whose_state_cannot_be_kept_is_told_all_the_same(server, broken):
    body = {"prompt": "a", "max_tokens": 4}
    session = {"session_id": "s", "state": {"session": "new"}}
    whole = (await server.post("/v1/completions", **body, **session)).json()
    last = (await server.stream("/v1/completions", **body, state={"save": True}))[-1]
    for answer in (whole, last):
        assert answer["choices"][0]["finish_reason"] == "length"
        assert (told(answer)["ref"], told(answer)["durable"]) == (None, False)
        assert told(answer)["error"] == {"code": "state_store_full", "message": "the disk is full"}
    assert server.runtime.turns.failed == 2
    assert server.runtime.hot.use.pinned == 0


async def test_the_old_protocol_fails_the_request(server, broken):
    xargs = {"rwkv_state_write_ref": "auto"}
    answer = await server.post("/v1/completions", prompt="a", vllm_xargs=xargs)
    assert code_of(answer) == (507, "state_store_full")
    *_, told_error, last = await server.stream("/v1/completions", prompt="a", vllm_xargs=xargs)
    assert told_error["error"]["code"] == "state_store_full"
    assert "rwkv_state_ref" not in last


async def test_a_failed_turn_leaves_its_session_as_it_was(server, monkeypatch):
    body = {"prompt": "a", "max_tokens": 4, "session_id": "s"}
    first = (await server.post("/v1/completions", state={"session": "new"}, **body)).json()
    with monkeypatch.context() as patch:

        async def fail(*anything):
            raise StateStoreFull("the disk is full")

        patch.setattr(server.runtime.store, "put", fail)
        await server.post("/v1/completions", state={"session": True}, **body)
    second = (await server.post("/v1/completions", state={"session": True}, **body)).json()
    assert told(second)["parent"] == told(first)["ref"]


async def test_a_session_whose_last_state_is_gone_tells_the_way_out(server):
    made = await server.complete("once", {"session": "new"}, session_id="s", max_tokens=4)
    await server.client.delete(f"/v1/states/{made['state']['ref']}")
    more = {"prompt": "more", "session_id": "s", "max_tokens": 4}
    gone = await server.post("/v1/completions", state={"session": True}, **more)
    assert code_of(gone) == (404, "state_not_found")
    assert "DELETE /v1/sessions/s" in gone.json()["error"]["message"]
    assert (await server.client.delete("/v1/sessions/s")).status_code == 200
    again = await server.post("/v1/completions", state={"session": "new"}, **more)
    assert again.status_code == 200


async def test_a_quota_is_known_before_anything_is_generated(tmp_path):
    async with paper_server.serve(tmp_path, maxBytesPerTenant=250_000) as server:
        answers = [
            await server.post("/v1/completions", prompt="a", state={"save": True}) for _ in range(3)
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert code_of(answers[2]) == (429, "state_quota")
        assert answers[2].headers["retry-after"]
        assert len(server.engine.seen) == 2
        other = {"headers": {"x-rwkv-tenant": "other"}, "prompt": "a", "state": {"save": True}}
        assert (await server.post("/v1/completions", **other)).status_code == 200


async def test_tenants_do_not_see_each_other(server):
    ref = told(await server.complete("a", {"save": True}, max_tokens=2))["ref"]
    other = {"headers": {"x-rwkv-tenant": "other"}, "prompt": "a", "state": {"ref": ref}}
    assert code_of(await server.post("/v1/completions", **other)) == (404, "state_not_found")


async def test_a_state_lives_as_long_as_it_was_told_to(server, monkeypatch):
    answer = await server.complete("a", {"save": True, "ttl_s": 5}, max_tokens=2)
    assert told(answer)["expires_at"] == pytest.approx(time.time() + 5, abs=4)
    monkeypatch.setattr(server.runtime.store, "_clock", lambda: time.time() + 6)
    gone = await server.post("/v1/completions", prompt="a", state={"ref": told(answer)["ref"]})
    assert code_of(gone) == (410, "state_expired")


async def test_a_name_that_comes_back_is_another_state(tmp_path, monkeypatch):
    async with paper_server.serve(tmp_path, store="persistentVolumeClaim") as server:
        await server.complete("once", {"save": "mine", "ttl_s": 5}, max_tokens=3)
        now = time.time() + 200
        monkeypatch.setattr(server.runtime.store, "_clock", lambda: now)
        refused = await server.post("/v1/completions", prompt="x", state={"save": "mine"})
        assert (refused.status_code, "last minutes" in refused.text) == (409, True)
        await server.runtime.store.sweep(now)
        await server.complete("and then", {"save": "mine"}, max_tokens=3, force="xyz")
        answer = await server.complete(" on", {"ref": "mine"}, max_tokens=9)
        plain = await server.complete("and thenxyz on", max_tokens=9)
        assert answer["choices"][0]["text"] == plain["choices"][0]["text"]
        assert told(answer)["source"] == "hot"


async def test_an_end_that_was_written_but_not_heard_of_is_one(server, monkeypatch):
    body = {"prompt": "a", "max_tokens": 3, "session_id": "s"}
    end, heard = server.runtime.store.end, []

    async def not_heard(claim, ref):
        await end(claim, ref)
        heard.append(ref)
        if len(heard) == 1:
            raise StateStoreUnavailable("no answer")

    monkeypatch.setattr(server.runtime.store, "end", not_heard)
    first = (await server.post("/v1/completions", state={"session": "new"}, **body)).json()
    assert heard == [told(first)["ref"]] * 2
    second = (await server.post("/v1/completions", state={"session": True}, **body)).json()
    assert told(second)["parent"] == told(first)["ref"]


@pytest.mark.parametrize("token", [-1, 1 << 32, 1.5, True, "a"])
@pytest.mark.parametrize("wish", [{}, {"state": {"save": True}}])
async def test_tokens_that_are_none(tmp_path, token, wish):
    async with paper_server.serve(tmp_path, automaticReuse="Memory") as server:
        await server.complete("abc", max_tokens=2)
        if wish:
            answer = await server.post("/v1/completions", prompt=[97, token], **wish)
            assert code_of(answer) == (400, "state_unsupported_option")
        else:
            # It reaches vLLM as it came, which has the word.
            with contextlib.suppress(Exception):
                await server.post("/v1/completions", prompt=[97, token])
            assert server.engine.seen[-1]["prompt"] == [97, token]


async def test_who_waits_for_memory_holds_nobody_up(tmp_path):
    async with paper_server.serve(tmp_path, hotBytes=330_000, automaticReuse="Memory") as server:
        ref = told(await server.complete("a", {"save": True}, max_tokens=2))["ref"]
        server.engine.gate = asyncio.Event()
        saving = {"prompt": "b", "state": {"save": True}, "max_tokens": 2}
        going = [asyncio.create_task(server.post("/v1/completions", **saving)) for _ in range(3)]
        while not server.runtime.hot.use.pinned:
            await asyncio.sleep(0.001)
        before = len(server.engine.seen)
        plain = asyncio.create_task(server.post("/v1/completions", prompt="hi", max_tokens=1))
        while not any(body["prompt"] == [104, 105] for body in server.engine.seen[before:]):
            await asyncio.sleep(0.001)
        server.engine.gate.set()
        answers = await asyncio.gather(plain, *going)
        assert [answer.status_code for answer in answers] == [200] * 4
        assert (await server.complete("c", {"ref": ref}, max_tokens=2))["state"]["parent"] == ref


async def test_memory_for_all_or_none(tmp_path, monkeypatch):
    async with paper_server.serve(tmp_path, hotBytes=330_000) as server:  # three slots
        ref = told(await server.complete("a", {"save": True}, max_tokens=2))["ref"]
        answers = await asyncio.gather(
            *(server.complete("b", {"ref": ref, "save": True}, max_tokens=2) for _ in range(6))
        )
        assert len({told(answer)["ref"] for answer in answers}) == 6
        monkeypatch.setattr(room, "WAIT_S", 0.05)
        server.engine.gate = asyncio.Event()
        body = {"prompt": "b", "state": {"save": True}}
        first = asyncio.create_task(server.post("/v1/completions", **body))
        while len(server.engine.seen) < 8:
            await asyncio.sleep(0.001)
        busy = await server.post("/v1/completions", **body)
        assert code_of(busy) == (503, "state_busy")
        server.engine.gate.set()
        assert (await first).status_code == 200

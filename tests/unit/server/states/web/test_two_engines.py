"""Two engines, each with a store that only it reads."""

from __future__ import annotations

import asyncio

import paper_server
import pytest

PEERS = {"url": "http://127.0.0.{ordinal}", "ordinals": 2}


@pytest.fixture
async def pods(tmp_path):
    async with paper_server.serve_all(tmp_path / "0", tmp_path / "1", peers=PEERS) as (pods, wire):
        yield pods, wire


async def turn(pod, session=True, **more):
    body = {"prompt": "go on ", "session_id": "s", "max_tokens": 5, **more}
    return await pod.post("/v1/completions", state={"session": session}, **body)


def code_of(answer):
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_state_of_another_engine(pods):
    (here, there), _ = pods
    made = await here.complete("once", {"save": True}, max_tokens=4)
    state = {"ref": made["state"]["ref"]}
    own = await here.complete("more", state, max_tokens=9)
    fetched = await there.complete("more", state, max_tokens=9)
    assert fetched["choices"][0]["text"] == own["choices"][0]["text"]
    assert fetched["state"]["source"] == "peer"
    assert (await there.complete("more", state, max_tokens=9))["state"]["source"] == "hot"


async def test_a_session_goes_on_elsewhere_and_comes_back(pods):
    (here, there), _ = pods
    answers = [(await turn(here, "new")).json()["state"]]
    for pod in (there, here, there, there, here):
        answer = await turn(pod)
        assert answer.status_code == 200, answer.text
        answers.append(answer.json()["state"])
    assert [a["parent"] for a in answers[1:]] == [a["ref"] for a in answers[:-1]]
    assert await there.runtime.store.head("default", "s") is None
    assert (await here.runtime.store.head("default", "s")).turn == 6


async def test_two_engines_at_once(pods):
    (here, there), _ = pods
    await turn(here, "new")
    there.engine.gate = asyncio.Event()
    first = asyncio.create_task(turn(there))
    while not there.engine.seen:
        await asyncio.sleep(0.001)
    assert code_of(await turn(here)) == (409, "session_conflict")
    there.engine.gate.set()
    head = (await first).json()["state"]["ref"]
    assert (await turn(here)).json()["state"]["parent"] == head


async def test_a_session_whose_engine_is_away_does_not_begin_anew(pods):
    (here, there), wire = pods
    await turn(here, "new")
    home = wire.pop(0)
    assert code_of(await turn(there)) == (503, "state_store_unavailable")
    # Begun here, it would be forgotten when its engine is back.
    assert code_of(await turn(there, "new")) == (503, "state_store_unavailable")
    wire[0] = home
    assert (await turn(there)).status_code == 200


async def test_a_new_session_is_not_begun_twice(pods):
    (here, there), _ = pods
    await turn(here, "new")
    assert code_of(await turn(there, "new")) == (409, "session_conflict")
    assert code_of(await turn(there, session_id="other")) == (404, "state_not_found")


async def test_the_home_leaves_during_a_turn(pods):
    (here, there), wire = pods
    first = (await turn(here, "new")).json()["state"]["ref"]
    there.engine.gate = asyncio.Event()
    going = asyncio.create_task(turn(there))
    while not there.engine.seen:
        await asyncio.sleep(0.001)
    home = wire.pop(0)
    there.engine.gate.set()
    answer = (await going).json()
    assert answer["choices"][0]["text"]
    assert answer["state"]["ref"] is None
    assert answer["state"]["error"]["code"] == "state_store_unavailable"
    wire[0] = home
    assert (await here.runtime.store.head("default", "s")).ref == first

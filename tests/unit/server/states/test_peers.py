"""Engines with a store each: what one has, another shows, resumes, lists and erases."""

from __future__ import annotations

import dataclasses
import socket

import httpx
import pytest
import state_app
import state_stores

from rwkv_server.states.errors import (
    SessionConflict,
    StateCorrupt,
    StateLost,
    StateNotFound,
    StateStoreUnavailable,
)
from rwkv_server.states.peers import Addresses, HttpPeers


@pytest.fixture
async def engines():
    return await state_app.start(3, shared=False)


async def make(engine, tenant="default", **more):
    async with state_app.client(engine, tenant) as http:
        answer = await http.post("/v1/states", json={"text": "hello", **more})
        assert answer.status_code == 201, answer.text
        return answer.json()["ref"]


async def test_a_state_is_shown_exported_and_forked_on_another_engine(engines):
    ref = await make(engines[1])
    assert ref.startswith("p1-")
    async with state_app.client(engines[0]) as here, state_app.client(engines[1]) as home:
        assert (await here.get(f"/v1/states/{ref}")).json() == (
            await home.get(f"/v1/states/{ref}")
        ).json()
        there = await home.get(f"/v1/states/{ref}/content")
        assert (await here.get(f"/v1/states/{ref}/content")).content == there.content
        fork = (await here.post(f"/v1/states/{ref}/fork")).json()
        assert fork["parent"] == ref and fork["ref"].startswith("p0-")


async def test_only_its_home_changes_a_state(engines):
    ref = await make(engines[1])
    async with state_app.client(engines[0]) as here:
        for method, path in [("DELETE", ""), ("POST", "/touch")]:
            answer = await here.request(method, f"/v1/states/{ref}{path}")
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "state_store_unavailable"
            assert answer.headers["retry-after"] == "5"


async def test_a_home_that_is_down_is_no_reason_to_call_it_lost(engines):
    ref = await make(engines[1])
    engines[1].down = True
    async with state_app.client(engines[0]) as here:
        answer = await here.get(f"/v1/states/{ref}")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


async def test_only_a_home_with_another_epoch_says_that_a_state_is_lost(engines):
    ref = await make(engines[1])
    lost = ref.replace(engines[1].store.epoch, "00000000")
    async with state_app.client(engines[0]) as here:
        answer = await here.get(f"/v1/states/{lost}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "state_lost")
        unknown = await here.get(f"/v1/states/{ref[:-1]}")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "state_not_found")
        beyond = ref.replace("p1-", "p9-")
        assert (await here.get(f"/v1/states/{beyond}")).status_code == 404


async def test_a_tenant_asks_for_its_own_only(engines):
    ref = await make(engines[1], "victim")
    async with state_app.client(engines[0], "thief") as thief:
        assert (await thief.get(f"/v1/states/{ref}")).status_code == 404


async def test_lists_and_erasures_reach_every_engine(engines):
    refs = [await make(engine) for engine in engines for _ in range(2)]
    async with state_app.client(engines[2]) as http:
        assert await state_app.turn_pages(http, 4) == sorted(refs)
        engines[0].down = True
        assert (await http.get("/v1/states")).status_code == 503
        assert (await http.delete("/v1/states?all=true")).status_code == 503
        engines[0].down = False
        assert (await http.delete("/v1/states?all=true")).json()["states"] == 2
        assert (await http.get("/v1/states")).json()["data"] == []


async def test_a_session_is_found_wherever_its_head_is(engines):
    store = engines[1].store
    await store.put(state_stores.make_record("p1-x-1", session="s"), state_app.snapshot(1))
    claim = await store.claim("default", "s", None, engines[1].saved._clock() + 60)
    await store.end(claim, "p1-x-1")
    async with state_app.client(engines[0]) as http:
        assert (await http.get("/v1/sessions/s")).json()["ref"] == "p1-x-1"
        assert (await http.get("/v1/sessions/t")).status_code == 404
        engines[2].down = True
        assert (await http.get("/v1/sessions/s")).status_code == 200
        assert (await http.get("/v1/sessions/t")).status_code == 503
        engines[2].down = False
        assert (await http.delete("/v1/sessions/s")).json()["states"] == 1
        assert (await http.get("/v1/sessions/s")).status_code == 404


async def test_a_turn_of_a_session_is_claimed_and_ended_where_its_log_is(engines):
    here, home, third = engines
    store = home.store
    claim = await store.claim("default", "s", None, home.saved._clock() + 60)
    await store.end(claim, "p1-x-1")
    asked = here.saved._peers
    found = await asked.session("default", "s")
    assert (found["ref"], found["turns"], found["ordinal"]) == ("p1-x-1", 1, 1)
    turn = await asked.claim("default", "s", found, 60)
    for other in (asked, third.saved._peers):
        with pytest.raises(SessionConflict):
            await other.claim("default", "s", found, 60)
    assert (await store.head("default", "s")).busy
    await asked.end(turn, "p0-x-2")
    await asked.end(turn, "p0-x-2")
    assert (await store.head("default", "s")).ref == "p0-x-2"
    assert await here.store.head("default", "s") is None
    with pytest.raises(SessionConflict, match="another turn meanwhile"):
        await asked.claim("default", "s", found, 60)
    again = await third.saved._peers.session("default", "s")
    turn = await third.saved._peers.claim("default", "s", again, 60)
    await third.saved._peers.end(turn, None)
    assert (await store.head("default", "s")).ref == "p0-x-2"


async def test_another_tenants_session_is_not_claimed(engines):
    here, home, _ = engines
    claim = await home.store.claim("victim", "s", None, home.saved._clock() + 60)
    await home.store.end(claim, "p1-x-1")
    found = {"ordinal": 1, "turns": 1}
    with pytest.raises(StateNotFound):
        await here.saved._peers.claim("thief", "s", found, 60)
    victims = await here.saved._peers.claim("victim", "s", found, 60)
    stolen = dataclasses.replace(victims, tenant="thief")
    await here.saved._peers.end(stolen, "evil")
    head = await home.store.head("victim", "s")
    assert (head.ref, head.busy) == ("p1-x-1", True)


async def test_a_claim_ends_by_its_deadline_when_its_engine_is_gone(engines):
    here, home, third = engines
    claim = await home.store.claim("default", "s", None, home.saved._clock() + 60)
    await home.store.end(claim, "p1-x-1")
    found = await here.saved._peers.session("default", "s")
    lost = await here.saved._peers.claim("default", "s", found, 30)
    home.saved._clock.now += 60
    await third.saved._peers.claim("default", "s", found, 30)
    with pytest.raises(SessionConflict, match="took longer"):
        await here.saved._peers.end(lost, "p0-x-2")
    home.down = True
    with pytest.raises(StateStoreUnavailable):
        await here.saved._peers.end(lost, None)


def peers(handler, ordinals=2):
    client = httpx.AsyncClient(transport=httpx.MockTransport(handler))
    return HttpPeers(Addresses(lambda n: f"http://e{n}", ordinals, 0), "secret", client)


async def test_the_key_and_the_tenant_travel_with_each_question():
    asked = []

    def handler(request):
        asked.append((request.headers["authorization"], request.headers["x-rwkv-tenant"]))
        return httpx.Response(404, json={"error": {"code": "state_not_found", "message": "m"}})

    with pytest.raises(StateNotFound):
        await peers(handler).record("team", "p1-a1b2c3d4-x")
    assert asked == [("Bearer secret", "team")]


def without_name(request):
    """As for a pod that there isn't."""
    error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    raise httpx.ConnectError("no name") from error


async def test_an_engine_that_there_is_not_has_no_sessions():
    asked = peers(without_name)
    assert await asked.session("team", "s") is None
    assert await asked.pages("team", None, None, 10) == []
    assert await asked.forget("team", None) == 0
    with pytest.raises(StateStoreUnavailable):
        await asked.record("team", "p1-a1b2c3d4-x")


async def test_an_engine_that_cant_be_told_to_erase_isnt_called_safe():
    def away(request):
        raise httpx.ConnectError("away")

    for handler in (away, lambda request: httpx.Response(500)):
        with pytest.raises(StateStoreUnavailable, match=r"engine 1 .*; send the DELETE again$"):
            await peers(handler).forget("team", None)


async def test_one_of_two_addresses_that_doesnt_answer_may_be_an_engine():
    class Apart(Exception):
        exceptions = (ConnectionRefusedError(111, "refused"), TimeoutError())

    def handler(request):
        raise httpx.ConnectError("away") from Apart()

    with pytest.raises(StateStoreUnavailable, match="can't be reached"):
        await peers(handler).drop_turns("team")


async def test_an_engine_without_a_name_is_awaited_where_others_are_above_it():
    def handler(request):
        if request.url.host != "e2":
            without_name(request)
        return httpx.Response(404, json={"error": {"code": "state_not_found", "message": "m"}})

    with pytest.raises(StateStoreUnavailable, match="engine 1 can't be reached"):
        await peers(handler, ordinals=4).session("team", "s")


async def test_an_engine_that_was_heard_is_awaited_for_a_while():
    now = [1000.0]
    there = [True]

    def handler(request):
        if not there[0]:
            without_name(request)
        return httpx.Response(404, json={"error": {"code": "state_not_found", "message": "m"}})

    client = httpx.AsyncClient(transport=httpx.MockTransport(handler))
    addresses = Addresses(lambda n: f"http://e{n}", 2, 0)
    asked = HttpPeers(addresses, "secret", client, lambda: now[0])
    assert await asked.session("team", "s") is None
    there[0] = False
    with pytest.raises(StateStoreUnavailable):
        await asked.session("team", "s")
    now[0] += 601
    assert await asked.session("team", "s") is None


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(200, content=b"{}"), StateCorrupt),
        (httpx.Response(500, content=b"no json"), StateStoreUnavailable),
        (httpx.Response(401, json={"error": {"code": "invalid_api_key"}}), StateStoreUnavailable),
        (
            httpx.Response(410, json={"error": {"code": "state_lost", "message": "gone"}}),
            StateLost,
        ),
    ],
)
async def test_whatever_a_peer_answers_is_a_typed_error(answer, error):
    with pytest.raises(error):
        await peers(lambda request: answer).record("team", "p1-a1b2c3d4-x")


async def test_another_states_record_or_changed_bytes_are_refused(engines):
    ref = await make(engines[1])
    record = await engines[1].store.get("default", ref)
    content = await engines[1].store.content(record)
    told = record.model_dump_json().encode()

    def handler(request):
        body = content[:-1] + b"\x01" if request.url.path.endswith("content") else told
        return httpx.Response(200, content=body)

    with pytest.raises(StateCorrupt, match="another state's"):
        await peers(handler).record("default", ref[:-1])
    with pytest.raises(StateCorrupt, match="changed on its way"):
        await peers(handler).content("default", record)

"""No tenant learns of another's states, on any route, whatever name it guesses."""

from __future__ import annotations

import re

import pytest
import state_app
import state_stores

from rwkv_server.web import routes

SECRET = "hidden"
TOKEN = {"turn": 2, "number": 1, "owner": "x", "deadline": 1.0}
BODIES = {
    "/v1/states/{ref}/fork": {"json": {}},
    "/v1/states/{ref}/touch": {"json": {}},
    "/v1/rwkv/state/{ref}/clone": {"json": {"target_ref": "stolen"}},
    "/internal/sessions/{id}/claim": {"json": {"turns": 1, "seconds": 60}},
    "/internal/sessions/{id}/end": {"json": {"token": TOKEN, "ref": None}},
}
# What isn't about one state.
OTHERS = {"/openapi.json", "/v1/rwkv/state/capabilities", "/internal/flush"}


@pytest.fixture
async def engine():
    (engine,) = await state_app.start()
    record = state_stores.make_record(SECRET, "victim", session=SECRET)
    await engine.store.put(record, state_app.snapshot(1))
    claim = await engine.store.claim("victim", SECRET, None, engine.saved._clock() + 60)
    await engine.store.end(claim, SECRET)
    await engine.store.put_document("victim", SECRET, b'{"id": "hidden", "object": "response"}')
    return engine


def requests(ref):
    """Every method of every route about one state or session."""
    for path, (methods, _) in routes.STATES.items():
        if "{" in path:
            for method in methods:
                filled = re.sub(r"\{\w+\}", ref, path)
                yield method, filled, BODIES.get(path, {})


async def test_every_route_that_names_a_state_is_walked():
    named = {path for path in routes.STATES if "{" in path}
    assert {re.sub(r"\{\w+\}", "x", path) for path in named} == {p for _, p, _ in requests("x")}
    lists = {"/v1/states", "/internal/states", "/internal/turns", "/v1/rwkv/state/upload"}
    assert set(routes.STATES) == named | OTHERS | lists


async def test_another_tenants_name_is_as_unknown_as_one_that_never_was(engine):
    async with state_app.client(engine, "thief") as thief:
        for (method, path, body), (_, never, _) in zip(
            requests(SECRET), requests("unseen"), strict=True
        ):
            if method == "PUT" or (method, path) == ("DELETE", f"/v1/sessions/{SECRET}"):
                continue
            if path.endswith("/end"):
                continue  # for engines, which have a claim; see test_peers
            answer = await thief.request(method, path, **body)
            blank = await thief.request(method, never, **body)
            assert answer.status_code == blank.status_code == 404, (method, path, answer.text)
            same = blank.text.replace("unseen", SECRET)
            assert answer.text == same, (method, path)


async def test_nothing_of_it_shows_in_lists_counts_or_erasures(engine):
    async with state_app.client(engine, "thief") as thief:
        for path in ("/v1/states", f"/v1/states?session={SECRET}", "/internal/states"):
            assert (await thief.get(path)).json()["data"] == []
        capabilities = (await thief.get("/v1/rwkv/state/capabilities")).json()["workers"][0]
        assert (capabilities["state_count"], capabilities["used_bytes"]) == (0, 0)
        for path in (
            f"/v1/sessions/{SECRET}",
            f"/v1/states?session={SECRET}",
            "/v1/states?all=true",
        ):
            assert (await thief.delete(path)).json()["states"] == 0
    async with state_app.client(engine, "victim") as victim:
        assert (await victim.get(f"/v1/states/{SECRET}")).status_code == 200
        assert (await victim.get(f"/v1/sessions/{SECRET}")).status_code == 200
        assert (await victim.get(f"/v1/responses/{SECRET}")).json()["id"] == SECRET


async def test_the_same_name_is_free_for_another_tenant(engine):
    async with state_app.client(engine, "thief") as thief:
        answer = await thief.post("/v1/states", json={"text": "mine", "name": SECRET})
        assert answer.status_code == 201
    async with state_app.client(engine, "victim") as victim:
        shown = (await victim.get(f"/v1/states/{SECRET}")).json()
        assert shown["consumed_tokens"] == 3


@pytest.mark.parametrize("tenant", ["../victim", "a/b", "victim\x00", "-", "a" * 200, "."])
async def test_tenants_are_names_too(engine, tenant):
    async with state_app.client(engine) as http:
        answer = await http.get("/v1/states", headers={"x-rwkv-tenant": tenant})
        assert answer.status_code == 400


async def test_without_api_keys_nothing_is_listed_exported_or_erased_at_once():
    (engine,) = await state_app.start(open_access=True)
    async with state_app.client(engine) as http:
        made = (await http.post("/v1/states", json={"text": "hi"})).json()
        for method, path in [
            ("GET", "/v1/states"),
            ("GET", "/v1/states?session=s"),
            ("GET", f"/v1/states/{made['ref']}/content"),
            ("DELETE", "/v1/states?all=true"),
        ]:
            answer = await http.request(method, path)
            assert answer.status_code == 403
            assert answer.json()["error"]["code"] == "state_forbidden"
        assert (await http.get(f"/v1/states/{made['ref']}")).status_code == 200
        assert (await http.post(f"/v1/states/{made['ref']}/fork")).status_code == 201


async def test_no_route_answers_without_the_internal_key(engine):
    async with state_app.client(engine) as http:
        for method, path, body in [*requests(SECRET), ("GET", "/openapi.json", {})]:
            answer = await http.request(method, path, headers={"authorization": "x"}, **body)
            assert answer.status_code == 401, path
        assert (await http.post("/internal/flush")).status_code == 404
    async with state_app.client(engine, host="127.0.0.1") as inside:
        assert (await inside.post("/internal/flush")).json()["failed"] == 0

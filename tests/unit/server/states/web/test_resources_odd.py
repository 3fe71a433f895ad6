"""States as resources where something is odd: names, ends, requests that break off."""

from __future__ import annotations

import json

import httpx
import pytest
import state_app
from safetensors.numpy import load, save
from state_app import BINARY, error, make, turn_pages

from rwkv_server.states import exports

NAMES = "a_b a-b a.b a:b aB ab a0 A Z a_ a- a a.x b_1 b1 b:1".split()


async def test_the_name_of_an_expired_state_is_free_once_it_is_deleted(engine, http):
    await make(http, name="mine", ttl_s=60)
    engine.saved._clock.now += 100
    body = {"text": "hello", "name": "mine"}
    taken = await http.post("/v1/states", json=body)
    assert error(taken) == (409, "state_exists")
    assert "delete it first" in taken.json()["error"]["message"]
    assert (await http.delete("/v1/states/mine")).status_code == 200
    assert (await http.post("/v1/states", json=body)).status_code == 201


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_pages_have_each_name_once(http, limit):
    long = "n" * 120
    for name in (*NAMES, long):
        await make(http, name=name)
    assert sorted(await turn_pages(http, limit)) == sorted([*NAMES, long])


async def test_a_state_without_an_answer_is_no_response(http):
    ref = (await make(http))["ref"]
    assert error(await http.delete(f"/v1/responses/{ref}")) == (404, "state_not_found")
    assert (await http.get(f"/v1/states/{ref}")).status_code == 200


async def test_no_more_pending_tokens_than_a_turn_has_room_for(http):
    ref = (await make(http))["ref"]
    file = (await http.get(f"/v1/states/{ref}/content")).content
    start = 8 + int.from_bytes(file[:8], "little")
    record = json.loads(json.loads(file[8:start])["__metadata__"][exports.RECORD])
    for pending, role, status in [(30, None, 422), (29, None, 201), (0, 7, 422), (0, "user", 201)]:
        changed = {**record, "pending": [1] * pending, "last_role": role}
        content = save(load(file), {exports.RECORD: json.dumps(changed)})
        answer = await http.post("/v1/states", content=content, headers=BINARY)
        assert answer.status_code == status, (pending, role, answer.text)


async def test_an_upload_that_breaks_off_is_no_error_of_ours(engine):
    headers = [
        (b"authorization", f"Bearer {state_app.KEY}".encode()),
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"1000"),
    ]
    scope = {
        "type": "http", "method": "POST", "path": "/v1/states", "raw_path": b"/v1/states",
        "query_string": b"", "headers": headers, "client": ("10.0.0.5", 1), "root_path": "",
        "server": ("engine", 80), "scheme": "http", "http_version": "1.1",
        "asgi": {"version": "3.0"},
    }  # fmt: skip
    coming = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": b"ab", "more_body": True},
    ]
    sent = []

    async def receive():
        return coming.pop() if len(coming) > 1 else coming[0]

    async def send(message):
        sent.append(message)

    await engine.app(scope, receive, send)
    assert sent[0]["status"] == 400


async def test_what_nobody_foresaw_is_answered_in_openais_shape(engine, monkeypatch):
    async def fail(*args):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(engine.store, "page", fail)
    transport = httpx.ASGITransport(engine.app, raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {state_app.KEY}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://engine", headers=headers
    ) as client:
        answer = await client.get("/v1/states")
    assert error(answer) == (500, "server_error")
    assert "secret" not in answer.text

"""What clients send in other words than JSON has: refused, or read as other routes read it."""

from __future__ import annotations

import paper_server
import pytest


@pytest.fixture
async def server(tmp_path):
    async with paper_server.serve(tmp_path) as server:
        yield server


@pytest.mark.parametrize("field", ["stream", "store"])
@pytest.mark.parametrize("value", ["false", 0, "true"])
@pytest.mark.parametrize("more", [{}, {"store": False}, {"state": {"save": True}}])
async def test_a_responses_options_are_true_or_false(server, field, value, more):
    body = {"input": "hi", **more, field: value}
    answer = await server.post("/v1/responses", **body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == field
    assert not server.engine.seen


async def test_an_option_that_is_null_is_left_out(server):
    answer = await server.post("/v1/responses", input="hi", stream=None, store=None, max_tokens=3)
    assert answer.json()["store"] is True
    assert (await server.client.get(f"/v1/responses/{answer.json()['id']}")).status_code == 200


async def test_an_empty_header_names_no_session(server):
    answer = await server.post(
        "/v1/completions",
        prompt="a",
        session_id="a1",
        state={"session": "new"},
        max_tokens=3,
        headers={"x-session-id": ""},
    )
    assert answer.json()["state"]["session"] == "a1"


async def test_of_two_tenants_all_routes_take_the_first(server):
    headers = [("x-rwkv-tenant", "ann"), ("x-rwkv-tenant", "bob")]
    body = {"model": "chat", "prompt": "a", "max_tokens": 3, "state": {"save": True}}
    saved = await server.client.post("/v1/completions", json=body, headers=headers)
    path = f"/v1/states/{saved.json()['state']['ref']}"
    for tenants, status in [(headers, 200), (headers[:1], 200), (headers[1:], 404)]:
        assert (await server.client.get(path, headers=tenants)).status_code == status

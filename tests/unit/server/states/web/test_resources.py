"""States as resources, over HTTP and a store in memory: made, shown, listed, deleted."""

from __future__ import annotations

import pytest
import state_app
from state_app import error, make, turn_pages


async def test_a_text_becomes_a_state_that_is_shown_listed_and_deleted(http):
    made = await make(http, "hello", ttl_s=60)
    assert made["ref"].startswith("p0-")
    assert (made["consumed_tokens"], made["pending_tokens"], made["durable"]) == (5, 0, True)
    assert (await http.get(f"/v1/states/{made['ref']}")).json() == made
    assert (await http.get("/v1/states")).json()["data"] == [made]
    gone = await http.delete(f"/v1/states/{made['ref']}")
    assert gone.json() == {"ref": made["ref"], "object": "state", "deleted": True}
    assert error(await http.get(f"/v1/states/{made['ref']}")) == (404, "state_not_found")
    assert error(await http.delete(f"/v1/states/{made['ref']}")) == (
        404,
        "state_not_found",
    )


async def test_messages_become_a_state_under_a_name_of_the_clients(http):
    body = {"messages": [{"role": "user", "content": "hi"}], "name": "greeting"}
    answer = await http.post("/v1/states", json=body)
    assert (answer.status_code, answer.json()["ref"]) == (201, "greeting")
    assert error(await http.post("/v1/states", json=body)) == (409, "state_exists")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, None),
        ({"text": "a", "messages": []}, "messages"),
        ({"text": ""}, "text"),
        ({"text": 5}, "text"),
        ({"text": "a", "ttl_s": 0}, "ttl_s"),
        ({"text": "a", "ttl_s": "soon"}, "ttl_s"),
        ({"text": "a", "name": "../x"}, "name"),
        ({"text": "a", "name": "p1-x"}, "name"),
        ({"text": "a", "tenant": "other"}, "tenant"),
        ({"text": "a", "kv_transfer_params": {}}, "kv_transfer_params"),
    ],
)
async def test_a_wrong_field_is_named(http, body, param):
    answer = await http.post("/v1/states", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert (await http.get("/v1/states")).json()["data"] == []


async def test_keys_that_are_there_twice_are_refused(http):
    for path in ("/v1/states", "/v1/states/x/fork", "/v1/states/x/touch"):
        body = b'{"ttl_s": 5, "ttl_s": 6}'
        answer = await http.post(path, content=body, headers={"content-type": "application/json"})
        assert error(answer) == (400, "duplicate_key")


async def test_pages_go_through_all_states_once(http):
    refs = {(await make(http, "x" * n))["ref"] for n in range(1, 8)}
    seen = await turn_pages(http, 3)
    assert len(seen) == len(refs) and set(seen) == refs
    for wrong in ("0", "101", "x"):
        assert error(await http.get("/v1/states", params={"limit": wrong})) == (
            400,
            "invalid_value",
        )


async def test_a_state_whose_time_is_over_says_so(engine, http):
    made = await make(http, ttl_s=60)
    engine.saved._clock.now += 100
    for method, path in [("GET", ""), ("GET", "/content"), ("POST", "/fork"), ("POST", "/touch")]:
        answer = await http.request(method, f"/v1/states/{made['ref']}{path}")
        assert error(answer) == (410, "state_expired"), path


async def test_a_state_that_a_turn_reads_stays(engine, http):
    made = await make(http)
    engine.reading.add(("default", made["ref"]))
    assert error(await http.delete(f"/v1/states/{made['ref']}")) == (409, "state_in_use")
    engine.reading.clear()
    assert (await http.delete(f"/v1/states/{made['ref']}")).status_code == 200
    assert engine.tier.dropped == [f"default/{made['ref']}@"]


async def test_the_quota_is_told(engine):
    (small,) = await state_app.start(quota=1000)
    async with state_app.client(small) as http:
        answer = await http.post("/v1/states", json={"text": "hi"})
        assert error(answer) == (429, "state_quota")
        assert answer.headers["retry-after"] == "60"


async def test_the_schema_is_published(http):
    schema = (await http.get("/openapi.json")).json()
    paths = schema["paths"]
    assert {"/v1/states", "/v1/states/{ref}/content", "/v1/rwkv/state/{ref}/clone"} <= set(paths)
    assert not any(path.startswith("/internal") for path in paths)
    references = set(_references(schema))
    names = {f"#/components/schemas/{name}" for name in schema["components"]["schemas"]}
    assert references <= names
    for operations in paths.values():
        for operation in operations.values():
            assert operation.get("summary") and "413" in operation["responses"]


def _references(value):
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)

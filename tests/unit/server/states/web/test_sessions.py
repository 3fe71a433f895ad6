"""Sessions and kept answers are shown, and erased with their states; so is all of a tenant."""

from __future__ import annotations

import state_app
import state_stores
from state_app import error, make


async def test_sessions_are_shown_and_erased_with_their_states(engine, http):
    record = state_stores.make_record("p0-x-1", session="s1")
    await engine.store.put(record, state_app.snapshot(1))
    claim = await engine.store.claim("default", "s1", None, engine.saved._clock() + 60)
    await engine.store.end(claim, "p0-x-1")
    other = await make(http)
    shown = (await http.get("/v1/sessions/s1")).json()
    assert (shown["ref"], shown["turns"], shown["busy"]) == ("p0-x-1", 1, False)
    listed = (await http.get("/v1/states", params={"session": "s1"})).json()["data"]
    assert [state["ref"] for state in listed] == ["p0-x-1"]
    erased = (await http.delete("/v1/sessions/s1")).json()
    assert erased == {"object": "erasure", "session": "s1", "states": 1}
    assert error(await http.get("/v1/sessions/s1")) == (404, "state_not_found")
    assert [s["ref"] for s in (await http.get("/v1/states")).json()["data"]] == [other["ref"]]
    assert "default/" in engine.tier.dropped


async def test_answers_of_the_responses_api_are_kept_and_go_with_their_states(engine, http):
    made = await make(http)
    assert error(await http.get(f"/v1/responses/{made['ref']}")) == (
        404,
        "state_not_found",
    )
    kept = b'{"id":"' + made["ref"].encode() + b'","object":"response"}'
    await engine.store.put_document("default", made["ref"], kept)
    assert (await http.get(f"/v1/responses/{made['ref']}")).content == kept
    gone = await http.delete(f"/v1/responses/{made['ref']}")
    assert gone.json() == {"id": made["ref"], "object": "response", "deleted": True}
    for path in ("responses", "states"):
        assert error(await http.get(f"/v1/{path}/{made['ref']}")) == (
            404,
            "state_not_found",
        )


async def test_everything_is_erased_only_when_that_is_said(engine, http):
    for _ in range(3):
        await make(http)
    async with state_app.client(engine, "other") as other:
        kept = await make(other)
        assert error(await http.delete("/v1/states")) == (400, "invalid_value")
        wrong = await http.delete("/v1/states?all=true&session=a")
        assert error(wrong) == (400, "invalid_value")
        assert (await http.delete("/v1/states?all=true")).json()["states"] == 3
        assert (await http.get("/v1/states")).json()["data"] == []
        assert (await other.get(f"/v1/states/{kept['ref']}")).status_code == 200

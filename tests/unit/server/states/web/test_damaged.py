"""A state whose record can't be read, as its owner meets it."""

from __future__ import annotations

from state_app import error, make

from rwkv_server.states.store import layout


async def test_it_is_told_by_name_and_goes_when_it_is_deleted(engine, http):
    await make(http, name="whole")
    await make(http, name="broken")
    key = layout.record("default", "broken")
    await engine.store.blobs.delete(key)
    await engine.store.blobs.create(key, b'{"format": 2}')
    listed = (await http.get("/v1/states")).json()
    assert ([state["ref"] for state in listed["data"]], listed["has_more"]) == (["whole"], False)
    shown = await http.get("/v1/states/broken")
    assert error(shown) == (422, "state_corrupt")
    assert "DELETE /v1/states/broken" in shown.json()["error"]["message"]
    again = await http.post("/v1/states", json={"text": "hello", "name": "broken"})
    assert error(again) == (409, "state_exists")
    assert "delete it first" in again.json()["error"]["message"]
    assert (await http.delete("/v1/sessions/other")).status_code == 200
    assert (await http.delete("/v1/states/broken")).status_code == 200
    assert "default/broken@" in engine.tier.dropped
    assert (await http.get("/v1/states/broken")).status_code == 404
    await make(http, name="broken")

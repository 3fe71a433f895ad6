"""Forks and touches of states: what is a state of its own, and what gets more time."""

from __future__ import annotations

import state_app
import state_stores
from state_app import error, make


async def test_a_fork_is_a_state_of_its_own(http):
    parent = await make(http)
    fork = (await http.post(f"/v1/states/{parent['ref']}/fork", json={"ttl_s": 9})).json()
    assert fork["parent"] == parent["ref"] and fork["ref"] != parent["ref"]
    assert fork["sha256"] == parent["sha256"]
    assert fork["expires_at"] < parent["expires_at"]
    await http.delete(f"/v1/states/{parent['ref']}")
    assert (await http.get(f"/v1/states/{fork['ref']}/content")).status_code == 200
    assert error(await http.post(f"/v1/states/{parent['ref']}/fork")) == (
        404,
        "state_not_found",
    )
    named = await http.post(f"/v1/states/{fork['ref']}/fork", json={"name": "branch"})
    assert named.json()["ref"] == "branch"
    again = await http.post(f"/v1/states/{fork['ref']}/fork", json={"name": "branch"})
    assert error(again) == (409, "state_exists")


async def test_a_fork_never_passes_another_models_state_off_as_this_ones(engine, http):
    theirs = state_stores.FINGERPRINT.model_copy(update={"model": "other"})
    record = state_stores.make_record("theirs", fingerprint=theirs)
    await engine.store.put(record, state_app.snapshot(1))
    answer = await http.post("/v1/states/theirs/fork")
    assert error(answer) == (422, "state_incompatible")
    clone = await http.post("/v1/rwkv/state/theirs/clone", json={"target_ref": "auto"})
    assert error(clone) == (422, "state_incompatible")
    assert len((await http.get("/v1/states")).json()["data"]) == 1


async def test_a_touch_gives_more_time(http):
    made = await make(http, ttl_s=60)
    touched = (await http.post(f"/v1/states/{made['ref']}/touch", json={"ttl_s": 600})).json()
    assert touched["expires_at"] > made["expires_at"] + 500
    shown = (await http.get(f"/v1/states/{made['ref']}")).json()
    assert shown["expires_at"] == touched["expires_at"]


async def test_touches_in_a_row_write_once(engine, http):
    made = await make(http, ttl_s=60)
    before = len(await engine.store.blobs.list(""))
    for _ in range(20):
        answer = await http.post(f"/v1/states/{made['ref']}/touch", json={"ttl_s": 600})
        assert answer.json()["expires_at"] > made["expires_at"] + 500
    assert len(await engine.store.blobs.list("")) == before + 1

"""A client of vllm-rwkv.state-cache.v1, written from that protocol's description, against ours."""

from __future__ import annotations

from typing import Any

import numpy
import pth_file
import pytest
import state_app

PROTOCOL = "vllm-rwkv.state-cache.v1"
RECORD = {
    "state_ref", "nbytes", "parent_ref", "processed_token_count", "pending_tail_token_count",
    "finish_reason", "state_dtype", "process_local", "durable", "scheduler_slots_reserved",
}  # fmt: skip
CAPABILITIES = {
    "supported", "enabled", "max_bytes", "used_bytes", "reserved_bytes", "snapshot_nbytes",
    "state_count", "prepared_read_count",
}  # fmt: skip


class Client:
    """What a program that only knows the protocol does."""

    def __init__(self, http):
        self._http = http

    async def ask(self, method: str, path: str, action: str, **more: Any) -> dict[str, Any]:
        answer = await self._http.request(method, f"/v1/rwkv/state/{path}", **more)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert (body["protocol"], body["action"]) == (PROTOCOL, action)
        (worker,) = body["workers"]
        return worker

    async def status(self, method: str, path: str, **more: Any) -> int:
        answer = await self._http.request(method, f"/v1/rwkv/state/{path}", **more)
        assert {"message", "type", "code"} <= answer.json()["error"].keys()
        return answer.status_code


@pytest.fixture
def old(http):
    return Client(http)


async def make(http, name="base"):
    answer = await http.post("/v1/states", json={"text": "hello", "name": name})
    return answer.json()


async def test_capabilities_have_every_field_of_the_protocol(http, old):
    before = await old.ask("GET", "capabilities", "capabilities")
    assert before.keys() >= CAPABILITIES
    assert before["supported"] is True and before["enabled"] is True
    assert before["snapshot_nbytes"] == state_app.LAYOUT.nbytes
    await make(http)
    after = await old.ask("GET", "capabilities", "capabilities")
    assert after["state_count"] == before["state_count"] + 1
    assert after["used_bytes"] > before["used_bytes"] + state_app.LAYOUT.nbytes
    assert after["import_supported"] is True


async def test_inspect_tells_the_record_and_more(http, old):
    made = await make(http)
    record = await old.ask("GET", "base", "inspect")
    assert record.keys() >= RECORD
    assert record["state_ref"] == "base" and record["parent_ref"] is None
    assert record["processed_token_count"] == 5 and record["pending_tail_token_count"] == 0
    assert record["state_dtype"] == "float32" and record["scheduler_slots_reserved"] == 0
    further = {"epoch", "sha256", "model_digest", "expires_at", "owner", "created_at"}
    assert record.keys() == RECORD | further
    assert record["epoch"] == made["epoch"]


async def test_a_clone_has_the_name_that_was_asked_for(http, old):
    await make(http)
    record = await old.ask("POST", "base/clone", "clone", json={"target_ref": "copy"})
    assert (record["state_ref"], record["parent_ref"]) == ("copy", "base")
    assert await old.status("POST", "base/clone", json={"target_ref": "copy"}) == 409
    assert await old.status("POST", "base/clone", json={"target_ref": "base"}) == 409
    assert await old.status("POST", "gone/clone", json={"target_ref": "x"}) == 404
    auto = await old.ask("POST", "base/clone", "clone", json={"target_ref": "auto"})
    assert auto["state_ref"].startswith("rwkv-p0-")


@pytest.mark.parametrize("body", [{}, {"target_ref": 5}, {"target_ref": "a", "more": 1}])
async def test_a_clone_without_a_good_target_is_refused(http, old, body):
    await make(http)
    assert await old.status("POST", "base/clone", json=body) == 400


@pytest.mark.parametrize("ref", ["-x", "a b", "ü", "a" * 129])
async def test_refs_outside_the_grammar_are_refused(old, ref):
    assert await old.status("GET", ref) == 400


async def test_delete_waits_for_no_reader_but_refuses(engine, http, old):
    await make(http)
    engine.reading.add(("default", "base"))
    assert await old.status("DELETE", "base") == 409
    engine.reading.clear()
    assert (await old.ask("DELETE", "base", "delete"))["state_ref"] == "base"
    assert await old.status("DELETE", "base") == 404
    assert await old.status("GET", "base") == 404


async def test_an_uploaded_initial_state_counts_nothing(old, tmp_path):
    entries = {f"blocks.{n}.att.time_state": numpy.ones((1, 64, 64), "f4") for n in range(2)}
    content = pth_file.write(tmp_path / "state.pth", entries).read_bytes()
    file = {"file": ("state.pth", content)}
    record = await old.ask("POST", "upload", "upload", files=file)
    assert record["state_ref"].startswith("rwkv-p0-")
    assert (record["finish_reason"], record["processed_token_count"]) == ("initial", 0)
    assert record["pending_tail_token_count"] == 0
    named = await old.ask("POST", "upload", "upload", files=file, data={"target_ref": "tuned"})
    assert named["state_ref"] == "tuned"
    assert await old.status("POST", "upload", files=file, data={"target_ref": "tuned"}) == 409
    assert await old.status("POST", "upload", files={"file": ("x", b"no zip")}) == 422
    assert await old.status("POST", "upload", data={"target_ref": "x"}, files={}) in (400, 422)


async def test_what_expired_is_unknown_and_what_does_not_fit_a_conflict(engine, http, old):
    await http.post("/v1/states", json={"text": "x", "name": "short", "ttl_s": 5})
    engine.saved._clock.now += 100
    answer = await http.get("/v1/rwkv/state/short")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "state_expired")
    room = state_app.LAYOUT.nbytes + 4000
    (small,) = await state_app.start(quota=room)
    async with state_app.client(small) as tight:
        await tight.post("/v1/states", json={"text": "x", "name": "base"})
        assert await Client(tight).status("POST", "base/clone", json={"target_ref": "copy"}) == 409


async def test_a_store_of_one_pod_takes_no_names(tmp_path):
    (engine,) = await state_app.start(shared=False)
    async with state_app.client(engine) as http:
        made = (await http.post("/v1/states", json={"text": "x"})).json()["ref"]
        answer = await http.post(f"/v1/rwkv/state/{made}/clone", json={"target_ref": "name"})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "state_needs_shared_store"

"""States as resources, over HTTP and a store in memory."""

from __future__ import annotations

import hashlib
import json
from random import Random

import pth_file
import pytest
import state_app
import state_stores
from safetensors.numpy import load, save

from rwkv_server.states import exports


@pytest.fixture
async def engine():
    return (await state_app.start())[0]


@pytest.fixture
async def http(engine):
    async with state_app.client(engine) as client:
        yield client


async def make(http, text="hello", **more):
    answer = await http.post("/v1/states", json={"text": text, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def error(answer):
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_text_becomes_a_state_that_is_shown_listed_and_deleted(http):
    made = await make(http, "hello", ttl_s=60)
    assert made["ref"].startswith("p0-")
    assert (made["consumed_tokens"], made["pending_tokens"], made["durable"]) == (5, 0, True)
    assert (await http.get(f"/v1/states/{made['ref']}")).json() == made
    assert (await http.get("/v1/states")).json()["data"] == [made]
    gone = await http.delete(f"/v1/states/{made['ref']}")
    assert gone.json() == {"ref": made["ref"], "object": "state", "deleted": True}
    assert error(await http.get(f"/v1/states/{made['ref']}")) == (404, "state_not_found")
    assert error(await http.delete(f"/v1/states/{made['ref']}")) == (404, "state_not_found")


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
    seen, query = [], {"limit": 3}
    while True:
        page = (await http.get("/v1/states", params=query)).json()
        seen += [state["ref"] for state in page["data"]]
        if not page["has_more"]:
            break
        query["after"] = page["last_id"]
    assert len(seen) == len(refs) and set(seen) == refs
    for wrong in ("0", "101", "x"):
        assert error(await http.get("/v1/states", params={"limit": wrong})) == (
            400,
            "invalid_value",
        )


async def test_a_fork_is_a_state_of_its_own(http):
    parent = await make(http)
    fork = (await http.post(f"/v1/states/{parent['ref']}/fork", json={"ttl_s": 9})).json()
    assert fork["parent"] == parent["ref"] and fork["ref"] != parent["ref"]
    assert fork["sha256"] == parent["sha256"]
    assert fork["expires_at"] < parent["expires_at"]
    await http.delete(f"/v1/states/{parent['ref']}")
    assert (await http.get(f"/v1/states/{fork['ref']}/content")).status_code == 200
    assert error(await http.post(f"/v1/states/{parent['ref']}/fork")) == (404, "state_not_found")
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


async def export(http, ref):
    answer = await http.get(f"/v1/states/{ref}/content")
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content)
    return answer.content


async def test_an_export_comes_back_as_the_same_state(http):
    made = await make(http)
    content = await export(http, made["ref"])
    back = (await http.put("/v1/states/copy/content", content=content)).json()
    assert (back["ref"], back["finish_reason"]) == ("copy", "import")
    same = ("consumed_tokens", "pending_tokens", "model_digest", "sha256")
    assert {name: back[name] for name in same} == {name: made[name] for name in same}
    assert back["parent"] is None and back["session"] is None
    found, wanted = load(await export(http, "copy")), load(content)
    assert found.keys() == wanted.keys()
    assert all((found[name] == wanted[name]).all() for name in wanted)
    assert error(await http.put("/v1/states/copy/content", content=content)) == (
        409,
        "state_exists",
    )


def rewritten(content, **changes):
    """An export whose record says something else."""
    length = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + length])
    record = json.loads(head["__metadata__"][exports.RECORD])
    for name, value in changes.items():
        if name in record["fingerprint"]:
            record["fingerprint"][name] = value
        else:
            record[name] = value
    told, tensors = json.dumps(record), content[8 + length :]
    head["__metadata__"][exports.RECORD] = told
    head["__metadata__"][exports.SUM] = hashlib.sha256(told.encode() + tensors).hexdigest()
    encoded = json.dumps(head).encode()
    return len(encoded).to_bytes(8, "little") + encoded + tensors


async def test_an_import_says_nothing_of_whose_it_is(http):
    content = await export(http, (await make(http))["ref"])
    lies = {
        "tenant": "victim",
        "parent": "theirs",
        "session": "theirs",
        "epoch": "zzzzzzzz",
        "ref": "theirs",
        "expires_at": None,
        "pending": [1, 2, 3],
        "consumed_tokens": 77,
    }
    made = (await http.post("/v1/states", content=rewritten(content, **lies), headers=RAW)).json()
    assert (made["consumed_tokens"], made["pending_tokens"]) == (77, 3)
    assert made["parent"] is None and made["session"] is None and made["expires_at"] is not None
    assert made["ref"].startswith("p0-") and made["epoch"] in made["ref"]


RAW = {"content-type": "application/octet-stream"}


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"model": "other"}, 422, 'model: found "other", wanted'),
        ({"tokenizer": "other"}, 422, "tokenizer"),
        ({"dtype": "bfloat16"}, 422, "dtype"),
        ({"layout": 2}, 422, "layout: found 2, wanted 1"),
        ({"adapters": "lora"}, 422, "adapters"),
        ({"format": 2}, 422, "format: found 2, wanted 1"),
        ({"pending": [12]}, 422, "pending: found 12, wanted tokens from 0 to 11"),
        ({"pending": [-1]}, 422, "pending"),
        ({"pending": [True]}, 422, "pending"),
        ({"pending": [1] * 33}, 422, "at most 29"),
        ({"pending": "1"}, 422, "pending"),
        ({"consumed_tokens": -1}, 422, "consumed_tokens"),
        ({"consumed_tokens": 1.5}, 422, "consumed_tokens"),
        ({"consumed_tokens": 1 << 60}, 422, "consumed_tokens"),
    ],
)
async def test_imports_that_cannot_be_are_refused(http, changes, status, words):
    content = rewritten(await export(http, (await make(http))["ref"]), **changes)
    answer = await http.post("/v1/states", content=content, headers=RAW)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]
    assert len((await http.get("/v1/states")).json()["data"]) == 1


async def test_damaged_files_are_refused_and_leave_nothing(engine, http):
    content = await export(http, (await make(http))["ref"])
    tensors = load(content)
    first = next(iter(tensors))
    tensors[first] = tensors[first].copy()
    tensors[first].reshape(-1)[3] = float("nan")
    narrow = {name: value.astype("f2") for name, value in load(content).items()}
    length = int.from_bytes(content[:8], "little")
    for bad in (
        b"",
        b"\x00" * 8,
        content[:-1],
        content[: len(content) // 2],
        content + b"x",
        b"\xff" * 8 + content[8:],
        content[:8] + b"[" * length + content[8 + length :],
        save(tensors),
        save(narrow),
        save({**load(content), "more": tensors[first]}),
        b"MZ" + content,
    ):
        answer = await http.post("/v1/states", content=bad, headers=RAW)
        assert answer.status_code == 422, answer.text
        assert error(answer)[1] in ("state_corrupt", "state_incompatible")
    assert len((await http.get("/v1/states")).json()["data"]) == 1
    assert len([blob for blob in await engine.store.blobs.list("") if "states" in blob.key]) == 2


async def test_a_flipped_bit_is_found_wherever_it_matters(http):
    content = await export(http, (await make(http))["ref"])
    wanted = load(content)
    length = int.from_bytes(content[:8], "little")
    random = Random(5)
    places = [random.randrange(8 + length) for _ in range(60)]
    places += [random.randrange(8 + length, len(content)) for _ in range(20)]
    refused = 0
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << random.randrange(8)
        answer = await http.post("/v1/states", content=bytes(flipped), headers=RAW)
        if answer.status_code == 422:
            refused += 1
            continue
        # What nobody reads may change; then it is the same state.
        made = answer.json()
        assert (answer.status_code, made["consumed_tokens"]) == (201, 5), place
        found = load(await export(http, made["ref"]))
        assert all((found[name] == wanted[name]).all() for name in wanted), place
        assert place < 8 + length
    assert refused > 70


async def test_a_file_without_a_record_is_a_state_of_no_text(http):
    content = save(load(await export(http, (await make(http))["ref"])))
    made = (await http.post("/v1/states", content=content, headers=RAW)).json()
    assert (made["consumed_tokens"], made["pending_tokens"]) == (0, 0)


async def test_what_is_too_large_is_refused_before_it_is_read(http):
    asked = []

    async def endless():
        while len(asked) < 4096:
            asked.append(None)
            yield b"\0" * 65536

    for method, path, kind in [
        ("POST", "/v1/states", RAW),
        ("POST", "/v1/states", {"content-type": "multipart/form-data; boundary=x"}),
        ("PUT", "/v1/states/name/content", RAW),
        ("POST", "/v1/rwkv/state/upload", {"content-type": "multipart/form-data; boundary=x"}),
    ]:
        asked.clear()
        answer = await http.request(method, path, content=endless(), headers=kind)
        assert error(answer) == (413, "state_too_large")
        assert len(asked) < 24
        told = {**kind, "content-length": str(2 << 30)}
        asked.clear()
        assert error(await http.request(method, path, content=endless(), headers=told)) == (
            413,
            "state_too_large",
        )
        assert len(asked) < 2


async def test_an_initial_state_comes_as_a_form_or_as_it_is(http, tmp_path):
    import numpy

    entries = {f"blocks.{n}.att.time_state": numpy.ones((1, 64, 64), "f4") * n for n in range(2)}
    content = pth_file.write(tmp_path / "state.pth", entries).read_bytes()
    answer = await http.post(
        "/v1/states", files={"file": ("a.pth", content)}, data={"name": "tuned", "ttl_s": "60"}
    )
    made = answer.json()
    assert (answer.status_code, made["ref"], made["finish_reason"]) == (201, "tuned", "initial")
    assert (made["consumed_tokens"], made["pending_tokens"]) == (0, 0)
    tensors = load(await export(http, "tuned"))
    assert (tensors["layers.1.wkv"] == 1).all() and not tensors["layers.1.att_shift"].any()
    raw = await http.put("/v1/states/other/content", content=content)
    assert raw.json()["sha256"] == made["sha256"]


async def test_a_pth_with_code_or_without_sense_is_refused(http, tmp_path):
    import numpy

    good = {f"blocks.{n}.att.time_state": numpy.ones((1, 64, 64), "f4") for n in range(2)}
    nan = {name: value * float("nan") for name, value in good.items()}
    evil = {**good, "x": pth_file.call("os", "system", "true")}
    for entries in (nan, evil, {}):
        content = pth_file.write(tmp_path / "x.pth", entries).read_bytes()
        answer = await http.post("/v1/states", files={"file": ("a.pth", content)})
        assert answer.status_code == 422, answer.text
    assert (await http.get("/v1/states")).json()["data"] == []


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
    assert error(await http.get(f"/v1/responses/{made['ref']}")) == (404, "state_not_found")
    kept = b'{"id":"' + made["ref"].encode() + b'","object":"response"}'
    await engine.store.put_document("default", made["ref"], kept)
    assert (await http.get(f"/v1/responses/{made['ref']}")).content == kept
    gone = await http.delete(f"/v1/responses/{made['ref']}")
    assert gone.json() == {"id": made["ref"], "object": "response", "deleted": True}
    for path in ("responses", "states"):
        assert error(await http.get(f"/v1/{path}/{made['ref']}")) == (404, "state_not_found")


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

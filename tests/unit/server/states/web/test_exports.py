"""States that leave as files and come back: the same, or refused."""

from __future__ import annotations

import hashlib
import json
from random import Random

import pytest
from safetensors.numpy import load, save
from state_app import BINARY, error, export, make

from rwkv_server.states import exports


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
    made = (
        await http.post("/v1/states", content=rewritten(content, **lies), headers=BINARY)
    ).json()
    assert (made["consumed_tokens"], made["pending_tokens"]) == (77, 3)
    assert made["parent"] is None and made["session"] is None and made["expires_at"] is not None
    assert made["ref"].startswith("p0-") and made["epoch"] in made["ref"]


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
    answer = await http.post("/v1/states", content=content, headers=BINARY)
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
        answer = await http.post("/v1/states", content=bad, headers=BINARY)
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
        answer = await http.post("/v1/states", content=bytes(flipped), headers=BINARY)
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
    made = (await http.post("/v1/states", content=content, headers=BINARY)).json()
    assert (made["consumed_tokens"], made["pending_tokens"]) == (0, 0)

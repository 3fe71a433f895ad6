from __future__ import annotations

import hashlib
import json

import pytest

from rwkv_server.errors import ModelInvalid
from rwkv_server.model import packed_manifest
from rwkv_server.model.config import RWKV7Config

CONFIG = RWKV7Config(320, 128, 2, 64, 512, 32, 32, 16, 64, 1e-5, False)
DIGEST = "sha256:" + "1" * 64
PAYLOAD = b"payload"


def content(scheme="W8", **changes):
    sha256 = hashlib.sha256(PAYLOAD).hexdigest()
    return packed_manifest.build(scheme, DIGEST, CONFIG, sha256) | changes


def parse(raw, scheme="W8"):
    return packed_manifest.parse(raw, "packed-w8.json", scheme, DIGEST, CONFIG)


@pytest.mark.parametrize(("scheme", "rows"), [("W8", (17, 28)), ("W4", (1, 8))])
def test_a_manifest_that_we_wrote_is_read(tmp_path, scheme, rows):
    name = packed_manifest.payload_name(scheme)
    (tmp_path / name).write_bytes(PAYLOAD)
    (tmp_path / packed_manifest.file_name(scheme)).write_text(json.dumps(content(scheme)))
    manifest = packed_manifest.read(tmp_path, scheme, DIGEST, CONFIG)
    assert (manifest.scheme, manifest.rows, manifest.payload) == (scheme, rows, name)
    assert manifest.shapes["model.layers.1.ffn.key.weight"] == (512, 128)
    assert len(manifest.shapes) == 4
    (tmp_path / name).write_bytes(PAYLOAD + b".")
    with pytest.raises(ModelInvalid, match="SHA-256 is"):
        packed_manifest.read(tmp_path, scheme, DIGEST, CONFIG)
    (tmp_path / name).unlink()
    with pytest.raises(ModelInvalid, match=f"{name} can't be read"):
        packed_manifest.read(tmp_path, scheme, DIGEST, CONFIG)


@pytest.mark.parametrize(
    "claim", [True, "false", None, 0, 1], ids=["true", "text", "null", "zero", "one"]
)
def test_whatever_claims_to_be_accepted_for_production_is_refused(claim):
    with pytest.raises(ModelInvalid, match="production_accepted must be false"):
        parse(content(production_accepted=claim))


def test_a_manifest_that_says_nothing_of_production_is_refused():
    raw = content()
    del raw["production_accepted"]
    with pytest.raises(ModelInvalid, match="production_accepted must be false"):
        parse(raw)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": "rwkv-packed-ffn/2"}, "schema is 'rwkv-packed-ffn/2', wanted"),
        ({"schema": None}, "schema is None"),
        ({"scheme": "W4"}, "scheme is 'W4', wanted 'W8'"),
        ({"group": 128}, "group is 128, wanted None"),
        ({"model": "sha256:" + "2" * 64}, "model is 'sha256:2"),
        ({"rows": []}, "rows must be among"),
        ({"rows": [17, 18]}, "rows must be among"),
        ({"rows": "17"}, "rows must be among"),
        ({"rows": None}, "rows must be among"),
        ({"shapes": {}}, "shapes is {}"),
        ({"payload": {"file": "../x", "sha256": ""}}, "payload.file is '../x'"),
        ({"payload": None}, "payload.file is None"),
    ],
)
def test_anything_else_than_expected_is_refused(changes, words):
    with pytest.raises(ModelInvalid, match=words):
        parse(content(**changes))


def test_one_shape_that_differs_is_refused():
    raw = content()
    raw["shapes"]["model.layers.1.ffn.value.weight"] = [512, 128]
    with pytest.raises(ModelInvalid, match="shapes is"):
        parse(raw)


@pytest.mark.parametrize("text", ["[]", "3", "{", ""])
def test_files_that_hold_no_object(tmp_path, text):
    (tmp_path / "packed-w8.json").write_text(text)
    with pytest.raises(ModelInvalid, match=r"packed-w8\.json"):
        packed_manifest.read(tmp_path, "W8", DIGEST, CONFIG)

from __future__ import annotations

import hashlib
import json

import pytest

from rwkv_server.errors import ModelInvalid
from rwkv_server.preflight import digest, promised

CONTENTS = {"a.safetensors": b"first", "b.safetensors": b"second"}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def files(tmp_path):
    for name, content in CONTENTS.items():
        (tmp_path / name).write_bytes(content)
    return [tmp_path / name for name in CONTENTS]


def run(files, **digests):
    given = {f"{name}.safetensors": value for name, value in digests.items()}
    return digest.hash_files(files, given, lambda percent: None)


def test_it_is_the_digest_of_all_bytes_in_order(files):
    assert run(files) == run(files[::-1]) == "sha256:" + sha256(b"firstsecond")


def test_digests_that_came_with_the_files_are_compared(files):
    whole = "sha256:" + sha256(b"firstsecond")
    assert run(files, a=sha256(b"first"), b=sha256(b"second"), gone="0") == whole
    assert run(files[:1], a=sha256(b"first")) == "sha256:" + sha256(b"first")


@pytest.mark.parametrize("count", [1, 2])
def test_another_file_than_promised_is_named(files, count):
    with pytest.raises(ModelInvalid, match=r"a\.safetensors is damaged or was changed") as caught:
        run(files[:count], a=sha256(b"other"))
    assert caught.value.found == "sha256:" + sha256(b"first")
    assert caught.value.wanted == "sha256:" + sha256(b"other")


def test_where_digests_come_from(tmp_path):
    assert promised.read_digests(tmp_path) == {}
    one, two = "1" * 64, "2" * 64
    (tmp_path / "SHA256SUMS").write_text(f"{one}  a.safetensors\nnonsense\n{two} *b c.json\n")
    files = {
        "d.json": {"digest": "git:" + "4" * 40},
        "e": {"digest": "sha256:" + "5" * 64},
        "f": 1,
    }
    (tmp_path / "manifest.json").write_text(json.dumps({"files": files}))
    found = promised.read_digests(tmp_path)
    assert found == {"a.safetensors": one, "b c.json": two, "e": "5" * 64}


def test_a_broken_list_is_told(tmp_path):
    (tmp_path / "SHA256SUMS").write_bytes(b"\xff")
    with pytest.raises(ModelInvalid, match="SHA256SUMS can't be read"):
        promised.read_digests(tmp_path)

from __future__ import annotations

import hashlib
import json

import pytest

from rwkv_server.fetch.folder import Folder, Origin
from rwkv_server.fetch.hub import RemoteFile

CONTENT = b"weights"
FILE = RemoteFile(
    "model.safetensors", len(CONTENT), "sha256:" + hashlib.sha256(CONTENT).hexdigest()
)


@pytest.fixture
def folder(tmp_path):
    found = Folder(tmp_path / "hub" / "model", Origin("huggingFace", "org/m", "main"))
    found.start()
    return found


def collect(folder, content=CONTENT):
    folder.part(FILE).write_bytes(content)


def publish(folder):
    collect(folder)
    folder.accept(FILE, FILE.digest)
    folder.publish("c0ffee", [FILE])


def test_parts_are_named_by_what_they_will_be(folder):
    other = RemoteFile("another.safetensors", FILE.size, FILE.digest)
    assert folder.part(FILE) == folder.part(other)
    assert folder.part(FILE).parent == folder.partial


def test_what_has_been_collected_counts(folder):
    assert folder.collected([FILE]) == 0
    collect(folder, b"wei")
    assert folder.collected([FILE]) == 3
    collect(folder)
    folder.accept(FILE, FILE.digest)
    assert folder.collected([FILE]) == 7
    assert folder.is_checked(FILE)


def test_a_checked_file_of_another_digest_or_size_isnt_this_one(folder):
    collect(folder)
    folder.accept(FILE, FILE.digest)
    assert not folder.is_checked(RemoteFile(FILE.name, FILE.size, "sha256:0"))
    assert not folder.is_checked(RemoteFile(FILE.name, 9, FILE.digest))
    assert not folder.is_checked(RemoteFile(FILE.name, FILE.size, ""))


def test_nothing_is_at_the_path_before_all_is(folder):
    collect(folder)
    assert not folder.path.exists()
    assert folder.read_manifest() is None
    publish(folder)
    assert folder.read_manifest() == {
        "version": 1,
        "source": "huggingFace",
        "repo": "org/m",
        "revision": "main",
        "commit": "c0ffee",
        "files": {FILE.name: {"size": 7, "digest": FILE.digest}},
    }
    assert not folder.partial.exists()


def test_files_of_another_commit_dont_come_along(folder):
    (folder.files / "old.json").write_text("{}")
    publish(folder)
    assert not (folder.path / "old.json").exists()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: (path / FILE.name).unlink(),
        lambda path: (path / FILE.name).write_bytes(b"w"),
        lambda path: (path / "manifest.json").unlink(),
        lambda path: (path / "manifest.json").write_text("[]"),
        lambda path: (path / "manifest.json").write_text(json.dumps({"files": {"x": 1}})),
    ],
)
def test_a_spoilt_copy_is_none_and_is_replaced(folder, spoil):
    publish(folder)
    spoil(folder.path)
    assert folder.read_manifest() is None
    folder.start()
    publish(folder)
    assert folder.read_manifest() is not None
    assert [path.name for path in folder.path.parent.iterdir()] == ["model"]


def test_what_is_missing_says_whether_there_is_half(folder):
    assert folder.missing().found == "half a download"
    assert "offline is true" in folder.missing().message

"""The archive of an image: its members, and what is left out for a receiver that has it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import archive


def put(store: Path, content: bytes) -> str:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    path = archive.blob(store, digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return digest


def add_image(store: Path, reference: str, *layers: bytes) -> dict[str, Any]:
    manifest = {
        "config": {"digest": put(store, reference.encode())},
        "layers": [{"digest": put(store, layer)} for layer in layers],
    }
    entry = {
        "digest": put(store, json.dumps(manifest).encode()),
        "annotations": {archive.NAME: reference},
    }
    index = store / "index.json"
    known = json.loads(index.read_text())["manifests"] if index.exists() else []
    index.write_text(json.dumps({"schemaVersion": 2, "manifests": [*known, entry]}))
    return entry


def members(store: Path, found: dict[str, Any], *without: str) -> dict[str, bytes]:
    return {
        name: content if isinstance(content, bytes) else content.read_bytes()
        for name, content in archive.entries(store, found, "x:1", frozenset(without))
    }


def test_an_archive_is_a_whole_oci_layout_under_the_full_name(tmp_path: Path) -> None:
    found = add_image(tmp_path, "x:1", b"big", b"small")
    got = members(tmp_path, found)
    index = json.loads(got.pop("index.json"))
    assert json.loads(got.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = index["manifests"]
    assert entry["annotations"][archive.CONTAINERD_NAME] == "x:1"
    assert entry["digest"] == found["digest"]
    for name, content in got.items():
        assert name == f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"
    assert b"big" in got.values()
    assert len(got) == 4


def test_layers_that_the_receiver_has_are_left_out(tmp_path: Path) -> None:
    found = add_image(tmp_path, "x:1", b"big", b"small")
    got = members(tmp_path, found, f"sha256:{hashlib.sha256(b'big').hexdigest()}")
    assert b"big" not in got.values()
    assert b"small" in got.values()


def test_the_same_layer_twice_is_sent_once(tmp_path: Path) -> None:
    found = add_image(tmp_path, "x:1", b"same", b"same")
    names = [name for name, _ in archive.entries(tmp_path, found, "x:1", frozenset())]
    assert len(names) == len(set(names))


def test_pruning_keeps_the_newest_images_and_their_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "KEPT_IMAGES", 2)
    for number in range(3):
        add_image(tmp_path, f"x:{number}", b"shared", f"own {number}".encode())
    archive.prune(tmp_path)
    left = {path.read_bytes() for path in (tmp_path / "blobs" / "sha256").iterdir()}
    assert b"own 0" not in left
    assert {b"shared", b"own 1", b"own 2"} <= left
    names = json.loads((tmp_path / "index.json").read_text())["manifests"]
    assert [entry["annotations"][archive.NAME] for entry in names] == ["x:1", "x:2"]

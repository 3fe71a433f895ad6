"""The archive of an image: its members, and what is left out for a receiver that has it."""

from __future__ import annotations

import io
import json
import tarfile

import archive

BIG, SMALL = b"big layer", b"small"
LAYERS = {archive.digest_of(content): content for content in (BIG, SMALL)}
MANIFEST = json.dumps(
    {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"digest": "sha256:c0"},
        "layers": [
            {"digest": archive.digest_of(content), "size": len(content)}
            for content in (BIG, SMALL, SMALL)
        ],
    }
).encode()


def test_the_index_has_the_image_under_its_full_name() -> None:
    (entry,) = json.loads(archive.render_index(MANIFEST, "localhost/a/b:1"))["manifests"]
    assert entry["annotations"][archive.CONTAINERD_NAME] == "localhost/a/b:1"
    assert entry["digest"] == archive.digest_of(MANIFEST)
    assert entry["size"] == len(MANIFEST)


def test_equal_layers_are_sent_once() -> None:
    sent = archive.layers_to_send(MANIFEST, frozenset())
    assert sent == [(digest, len(content)) for digest, content in LAYERS.items()]


def test_layers_that_the_receiver_has_are_left_out() -> None:
    sent = archive.layers_to_send(MANIFEST, frozenset([archive.digest_of(BIG)]))
    assert sent == [(archive.digest_of(SMALL), len(SMALL))]
    assert archive.layers_to_send(MANIFEST, frozenset(LAYERS)) == []


def test_the_archive_holds_members_and_layers_by_digest() -> None:
    out = io.BytesIO()
    layers = archive.layers_to_send(MANIFEST, frozenset())
    archive.write_archive(out, [("a.json", b"{}")], layers, lambda d: io.BytesIO(LAYERS[d]))
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        got = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]
    expected = {archive.blob_path(digest): content for digest, content in LAYERS.items()}
    assert got == {"a.json": b"{}", **expected}


def test_a_layer_that_ends_early_is_an_error() -> None:
    layers = [(archive.digest_of(BIG), len(BIG))]
    try:
        archive.write_archive(io.BytesIO(), [], layers, lambda _: io.BytesIO(b"bi"))
    except OSError:
        return
    raise AssertionError("a truncated layer went through")

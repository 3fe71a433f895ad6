"""Stream an image of the local storage as an archive, without the layers that the other side has.

    python image/archive.py REFERENCE [--without FILE] > image.tar

Layers are exported once into a folder of the cache, shared by all images. FILE lists digests that
the receiver already has, one a line (`ctr content ls -q`): a change of our own code then moves a
few hundred KB instead of the engine's gigabytes. Nothing here builds, or knows a cluster.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import command
import engine_env

KEPT_IMAGES = 12
NAME = "org.opencontainers.image.ref.name"
# containerd takes the full name from this annotation; the one above may be a tag only.
CONTAINERD_NAME = "io.containerd.image.name"


def blob(store: Path, digest: str) -> Path:
    """Where an OCI layout keeps a blob."""
    algorithm, _, value = digest.partition(":")
    return store / "blobs" / algorithm / value


def digests_of(store: Path, manifest_digest: str) -> list[str]:
    """The manifest, its config and its layers."""
    manifest = json.loads(blob(store, manifest_digest).read_text())
    parts = [manifest["config"], *manifest["layers"]]
    return [manifest_digest, *(part["digest"] for part in parts)]


def export(reference: str, store: Path) -> dict[str, Any]:
    """Add what the layout lacks of the image, and return the image's descriptor."""
    if not (store / "index.json").exists() or not _find(store, reference):
        target = f"oci:{store}:{reference}"
        push = ["buildah", "push", "--disable-compression", reference, target]
        command.run_logged(f"export of {reference}", push, store.parent / "export.log")
        prune(store)
    (found,) = _find(store, reference)
    return found


def _find(store: Path, reference: str) -> list[dict[str, Any]]:
    manifests: list[dict[str, Any]] = json.loads((store / "index.json").read_text())["manifests"]
    return [entry for entry in manifests if entry["annotations"].get(NAME) == reference]


def prune(store: Path) -> None:
    """Forget all but the newest images of a layout, and the blobs that only they had."""
    path = store / "index.json"
    index = json.loads(path.read_text())
    index["manifests"] = index["manifests"][-KEPT_IMAGES:]
    path.write_text(json.dumps(index))
    used = {digest for entry in index["manifests"] for digest in digests_of(store, entry["digest"])}
    for file in (store / "blobs" / "sha256").iterdir():
        if f"sha256:{file.name}" not in used:
            file.unlink()


def entries(
    store: Path, found: dict[str, Any], reference: str, without: frozenset[str]
) -> Iterator[tuple[str, bytes | Path]]:
    """The archive's members: small ones as bytes, blobs as files."""
    described = {**found, "annotations": {NAME: reference, CONTAINERD_NAME: reference}}
    yield "oci-layout", b'{"imageLayoutVersion":"1.0.0"}'
    yield "index.json", json.dumps({"schemaVersion": 2, "manifests": [described]}).encode()
    for digest in dict.fromkeys(digests_of(store, found["digest"])):
        if digest not in without:
            yield f"blobs/{digest.replace(':', '/')}", blob(store, digest)


def write(reference: str, out: IO[bytes], without: frozenset[str]) -> None:
    """Write the image as an OCI archive, or as Docker saves it where only Docker has it."""
    if command.output_of(["buildah", "inspect", "--type", "image", reference]) is None:
        subprocess.run(["docker", "save", reference], check=True, stdout=out)
        return
    store = engine_env.cache_root() / "images" / "oci"
    store.parent.mkdir(parents=True, exist_ok=True)
    found = export(reference, store)
    with tarfile.open(fileobj=out, mode="w|", bufsize=1 << 20) as tar:
        for name, content in entries(store, found, reference, without):
            if isinstance(content, Path):
                tar.add(content, name)
            else:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def main() -> None:
    """Stream one image to standard output."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("reference")
    parser.add_argument("--without", type=Path, help="file with digests that the receiver has")
    args = parser.parse_args()
    without = args.without.read_text().split() if args.without else []
    try:
        write(args.reference, sys.stdout.buffer, frozenset(without))
    except command.CommandFailed as failure:
        raise SystemExit(f"archive: {failure}") from None


if __name__ == "__main__":
    main()

"""Stream an image of the local storage as an OCI archive, without layers that the other side has.

    python image/archive.py REFERENCE [--without FILE] > image.tar

FILE lists digests that the receiver has, one a line (`ctr content ls -q`): a change of our own code
then moves less than 1 MB instead of the engine's 2 GB. Layers come out of the storage as the very
bytes that their digests name. Nothing here builds, or knows a cluster.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

import command

STORAGE = "containers-storage"
NAME = "org.opencontainers.image.ref.name"
# containerd takes the full name from this one; the one above may be a tag only.
CONTAINERD_NAME = "io.containerd.image.name"

Opener = Callable[[str], AbstractContextManager[IO[bytes]]]


def render_index(manifest: bytes, reference: str) -> bytes:
    """The archive's table of contents: one image under its full name."""
    entry = {
        "mediaType": json.loads(manifest)["mediaType"],
        "digest": digest_of(manifest),
        "size": len(manifest),
        "annotations": {NAME: reference, CONTAINERD_NAME: reference},
    }
    return json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()


def digest_of(content: bytes) -> str:
    """The name of a blob."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def blob_path(digest: str) -> str:
    """Where an OCI layout has a blob."""
    return f"blobs/{digest.replace(':', '/')}"


def layers_to_send(manifest: bytes, without: frozenset[str]) -> list[tuple[str, int]]:
    """Digest and size of each layer that the receiver lacks; equal layers once."""
    layers = json.loads(manifest)["layers"]
    sizes = {layer["digest"]: layer["size"] for layer in layers}
    return [(digest, size) for digest, size in sizes.items() if digest not in without]


def write_archive(
    out: IO[bytes],
    members: Iterable[tuple[str, bytes]],
    layers: Iterable[tuple[str, int]],
    open_layer: Opener,
) -> None:
    """Write small members, then layers as they come from `open_layer`."""
    with tarfile.open(fileobj=out, mode="w|", bufsize=1 << 20) as tar:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for digest, size in layers:
            entry = tarfile.TarInfo(blob_path(digest))
            entry.size = size
            with open_layer(digest) as stream:
                tar.addfile(entry, stream)


def read_storage(*args: str) -> bytes:
    """The answer of the storage's own program, which comes with Debian's package of that name."""
    if shutil.which(STORAGE) is None:
        raise command.CommandFailed(f"{STORAGE} is missing: apt-get install {STORAGE}")
    done = subprocess.run([STORAGE, *args], capture_output=True)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise command.CommandFailed(f"{' '.join(args)}: {reason}")
    return done.stdout


def layer_opener() -> Opener:
    """A function that opens a layer of the storage by its digest, as an uncompressed tar."""
    known: list[dict[str, Any]] = json.loads(read_storage("layers", "--json"))
    ids = {layer["diff-digest"]: layer["id"] for layer in known if "diff-digest" in layer}

    @contextmanager
    def open_layer(digest: str) -> Iterator[IO[bytes]]:
        words = [STORAGE, "diff", "--uncompressed", ids[digest]]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield process.stdout
        if process.returncode:
            raise command.CommandFailed(f"the layer {digest} can't be read, see above")

    return open_layer


def write(reference: str, out: IO[bytes], without: frozenset[str]) -> None:
    """Write the image as an OCI archive, or as Docker saves it where only Docker has it."""
    if command.output_of(["buildah", "inspect", "--type", "image", reference]) is None:
        subprocess.run(["docker", "save", reference], check=True, stdout=out)
        return
    manifest = read_storage("get-image-data", reference, "manifest")
    config_digest = json.loads(manifest)["config"]["digest"]
    members = [
        ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
        ("index.json", render_index(manifest, reference)),
        (blob_path(digest_of(manifest)), manifest),
        (blob_path(config_digest), read_storage("get-image-data", reference, config_digest)),
    ]
    write_archive(out, members, layers_to_send(manifest, without), layer_opener())


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
    except BrokenPipeError:
        raise SystemExit("archive: the receiver stopped reading") from None


if __name__ == "__main__":
    main()

"""Build the images of this repository, each under a tag that is the hash of what goes in.

    python image/build.py server operator router     builds what isn't there yet
    python image/build.py --print server             only tells the reference
    python image/build.py --archive server           writes the image to standard output

Docker builds where an engine answers, else buildah without a daemon, on bases made by `base.py`.
What an image holds is its Dockerfile's business; how it gets into a cluster is `archive.py`'s and
the cluster program's.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import archive
import base
import command
import engine_env
import storage

REPO = Path(__file__).resolve().parent.parent
REPOSITORY = "localhost/rwkv-operator"
# A step that takes time, as buildah and as Docker announce it.
STEP = re.compile(r"(?:.*STEP \d+/\d+: |#\d+ \[.+\] )(?P<what>(?:RUN|COPY) .*)")
# What building and running leave; libraries are built in the image for its own machine.
NOT_SOURCES = re.compile(r"(^|/)(__pycache__|[^/]+\.egg-info|kernels/cpp/lib)(/|$)|\.pyc$")


@dataclass(frozen=True)
class Image:
    """One image.

    Attributes:
        name: of the image and its Dockerfile.
        copied: files and folders that the Dockerfile copies.
        bases: build arguments that take a base image, and which one of `base.py`.
        parent: an image of this table that this one is built on, as build argument.
    """

    name: str
    copied: tuple[str, ...]
    bases: dict[str, str]
    parent: tuple[str, str] | None = None

    @property
    def dockerfile(self) -> str:
        """Path in the repository."""
        return f"image/{self.name}.Dockerfile"


@dataclass(frozen=True)
class Settings:
    """How this call builds: with Docker or buildah, torch from where, for which platform."""

    docker: bool
    torch_index: str | None = None
    platform: str | None = None


UV = ("image/fetch.sh", "image/constraints/uv.txt")
OWN_CODE = (*UV, "image/constraints/build.txt", "pyproject.toml")
# Copied by another target of the server's Dockerfile.
ASCEND = ("image/ascend", *(f"image/constraints/ascend-{part}.txt" for part in ("image", "hub")))
IMAGES = {
    image.name: image
    for image in (
        Image(
            "engine",
            (*UV, "image/engine_env.py", "image/slim.py", "image/constraints/cpu.txt"),
            {"BASE": "python", "BUILD_BASE": "python-build"},
        ),
        Image(
            "server",
            (*OWN_CODE, "server/rwkv_server", "image/models", *ASCEND),
            {"BUILD_BASE": "python-compile"},
            parent=("ENGINE", "engine"),
        ),
        Image(
            "operator",
            (*OWN_CODE, "operator/rwkv_operator", "image/constraints/operator.txt"),
            {"BASE": "python", "BUILD_BASE": "python-build"},
        ),
        Image("router", ("image/router",), {"BASE": "haproxy"}),
    )
}


def source_files(root: Path, copied: tuple[str, ...]) -> list[str]:
    """The files under the copied paths, sorted, without what building or running leaves there."""
    found: list[str] = []
    for path in copied:
        here = root / path
        inside = here.rglob("*") if here.is_dir() else [here]
        found += [file.relative_to(root).as_posix() for file in inside if file.is_file()]
    return sorted(name for name in found if not NOT_SOURCES.search(name))


def content_hash(root: Path, image: Image, arguments: dict[str, str]) -> str:
    """12 hex digits over the Dockerfile, each copied file and the build's arguments."""
    digest = hashlib.sha256()
    for name in [image.dockerfile, *source_files(root, image.copied)]:
        content = hashlib.sha256((root / name).read_bytes()).hexdigest()
        executable = os.access(root / name, os.X_OK)
        digest.update(f"{name}\0{executable}\0{content}\n".encode())
    for key, value in sorted(arguments.items()):
        digest.update(f"{key}={value}\n".encode())
    return digest.hexdigest()[:12]


@functools.cache
def docker_answers() -> bool:
    """Whether a Docker engine can be used on this machine."""
    return (
        command.output_of(["docker", "version", "--format", "{{.Server.Version}}"], 10) is not None
    )


def arguments_of(image: Image, settings: Settings, parent: str | None) -> dict[str, str]:
    """Build arguments that change the result; Docker takes the Dockerfiles' own bases."""
    arguments = {}
    if not settings.docker:
        arguments = {arg: base.reference(base.BASES[name]) for arg, name in image.bases.items()}
    if image.parent and parent:
        arguments[image.parent[0]] = parent
    if settings.torch_index and image.name == "engine":
        arguments["TORCH_INDEX"] = settings.torch_index
    return arguments


def tag_of(image: Image, settings: Settings, arguments: dict[str, str]) -> str:
    """The image's reference in the local storage, from the present content of the work tree."""
    inputs = arguments | {"platform": settings.platform or ""}
    return f"{REPOSITORY}/{image.name}:{content_hash(REPO, image, inputs)}"


def reference_of(image: Image, settings: Settings) -> str:
    """The reference under which `ensure` would build the image now."""
    parent = reference_of(IMAGES[image.parent[1]], settings) if image.parent else None
    return tag_of(image, settings, arguments_of(image, settings, parent))


def build_command(
    image: Image, reference: str, settings: Settings, arguments: dict[str, str]
) -> list[str]:
    """The command that builds one image from the repository's root."""
    bundle = os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    options = ["--file", str(REPO / image.dockerfile), "--tag", reference]
    options += ["--secret", f"id=ca,src={bundle}"] if Path(bundle).exists() else []
    options += ["--platform", settings.platform] if settings.platform else []
    for key, value in arguments.items():
        options += ["--build-arg", f"{key}={value}"]
    if settings.docker:
        return ["docker", "build", *options, str(REPO)]
    cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
    Path(cache).mkdir(parents=True, exist_ok=True)
    options += ["--volume", f"{cache}:/host-uv", "--build-arg", "UV_CACHE_DIR=/host-uv"]
    # Time stamps of 0 make a layer with the same content the same layer, so that it isn't imported
    # into a cluster twice.
    own = ["--isolation", "chroot", "--layers", "--timestamp", "0"]
    return ["buildah", "bud", *own, *options, str(REPO)]


def ensure(image: Image, settings: Settings, progress: command.Progress) -> str:
    """Build an image and what it is built on, as far as they aren't there; its reference."""
    # The parent as it was built: the work tree may change meanwhile.
    parent = ensure(IMAGES[image.parent[1]], settings, progress) if image.parent else None
    arguments = arguments_of(image, settings, parent)
    reference = tag_of(image, settings, arguments)
    if storage.is_built(reference, settings.docker):
        return reference
    if not settings.docker:
        for name in image.bases.values():
            base.ensure(base.BASES[name], progress)
    log = engine_env.cache_root() / "images" / f"{image.name}.log"
    progress.say(f"{image.name}: building {reference}, log: {log}")

    def tell(line: str) -> None:
        if step := STEP.match(line):
            words = re.sub(r"--(mount|from|root)\S+ |\s+", " ", step["what"]).split()
            progress.say(f"{image.name}: {' '.join(words)[:90]}")

    make = build_command(image, reference, settings, arguments)
    command.run_logged(f"image {image.name}", make, log, on_line=tell)
    progress.say(f"{image.name}: built {reference}")
    if not settings.docker:
        storage.forget_old(f"{REPOSITORY}/{image.name}", stages=image.name == "engine")
    return reference


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the machine's build lock: two builds at once would do the same work twice."""
    path = engine_env.cache_root() / "images" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="+", choices=[*IMAGES])
    parser.add_argument("--print", action="store_true", help="print the references, build nothing")
    parser.add_argument("--archive", action="store_true", help="write one image to standard output")
    parser.add_argument("--tag", help="a second tag, for example a version")
    parser.add_argument("--torch-index", help="index of torch's CPU wheels, see image/README.md")
    parser.add_argument("--platform", help="for example linux/arm64; the machine's own by default")
    return parser.parse_args()


def main() -> None:
    """Build, print or stream the named images."""
    args = parse_arguments()
    settings = Settings(docker_answers(), args.torch_index, args.platform)
    images = [IMAGES[name] for name in args.name]
    if args.print:
        print("\n".join(reference_of(image, settings) for image in images))
        return
    progress = command.Progress()
    try:
        with one_at_a_time():
            references = [ensure(image, settings, progress) for image in images]
        for reference in references if args.tag else ():
            storage.add_tag(reference, args.tag, settings.docker)
    except command.CommandFailed as failure:
        raise SystemExit(f"images: {failure}") from None
    if args.archive:
        archive.write(references[0], sys.stdout.buffer, frozenset())
    else:
        print("\n".join(references))


if __name__ == "__main__":
    main()

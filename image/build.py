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

REPO = Path(__file__).resolve().parent.parent
REPOSITORY = "localhost/rwkv-operator"
# A step that takes time, as buildah and as Docker announce it.
STEP = re.compile(r"(?:.*STEP \d+/\d+: |#\d+ \[.+\] )(?P<what>(?:RUN|COPY) .*)")
NOT_SOURCES = re.compile(r"(^|/)(__pycache__|[^/]+\.egg-info)(/|$)|\.pyc$")


@dataclass(frozen=True)
class Image:
    """One image: its Dockerfile, the files and folders that it copies, the bases that it takes."""

    name: str
    copied: tuple[str, ...]
    bases: dict[str, str]

    @property
    def dockerfile(self) -> str:
        """Path in the repository."""
        return f"image/{self.name}.Dockerfile"


PYTHON_BASES = {"BASE": "python", "BUILD_BASE": "python-build"}
TOOLS = ("image/fetch.sh", "image/constraints/uv.txt", "image/constraints/build.txt")
IMAGES = {
    image.name: image
    for image in (
        Image(
            "server",
            (
                *TOOLS, "pyproject.toml", "server/rwkv_server", "image/models",
                "image/engine_env.py", "image/slim.py", "image/constraints/cpu.txt",
            ),
            PYTHON_BASES,
        ),
        Image(
            "operator",
            (*TOOLS, "pyproject.toml", "operator/rwkv_operator", "image/constraints/operator.txt"),
            PYTHON_BASES,
        ),
        Image("router", ("image/router",), {"BASE": "haproxy"}),
    )
}  # fmt: skip


def source_files(root: Path, copied: tuple[str, ...]) -> list[str]:
    """The files under the copied paths, sorted, without what building or running leaves there."""
    found: list[str] = []
    for path in copied:
        here = root / path
        inside = here.rglob("*") if here.is_dir() else [here]
        found += [file.relative_to(root).as_posix() for file in inside if file.is_file()]
    return sorted(name for name in found if not NOT_SOURCES.search(name))


def content_hash(root: Path, image: Image, settings: dict[str, str]) -> str:
    """12 hex digits over the Dockerfile, each copied file and the build's arguments."""
    digest = hashlib.sha256()
    for name in [image.dockerfile, *source_files(root, image.copied)]:
        content = hashlib.sha256((root / name).read_bytes()).hexdigest()
        executable = os.access(root / name, os.X_OK)
        digest.update(f"{name}\0{executable}\0{content}\n".encode())
    for key, value in sorted(settings.items()):
        digest.update(f"{key}={value}\n".encode())
    return digest.hexdigest()[:12]


@functools.cache
def docker_answers() -> bool:
    """Whether a Docker engine can be used on this machine."""
    return (
        command.output_of(["docker", "version", "--format", "{{.Server.Version}}"], 10) is not None
    )


def build_arguments(image: Image, docker: bool, torch_index: str | None) -> dict[str, str]:
    """Build arguments that change the result; with Docker the Dockerfiles' own bases are taken."""
    arguments = {}
    if not docker:
        arguments = {arg: base.reference(base.BASES[name]) for arg, name in image.bases.items()}
    if torch_index and image.name == "server":
        arguments["TORCH_INDEX"] = torch_index
    return arguments


def build_command(
    image: Image, reference: str, arguments: dict[str, str], docker: bool
) -> list[str]:
    """The command that builds one image from the repository's root."""
    bundle = os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    secret = ["--secret", f"id=ca,src={bundle}"] if Path(bundle).exists() else []
    options = ["--file", str(REPO / image.dockerfile), "--tag", reference, *secret]
    for key, value in arguments.items():
        options += ["--build-arg", f"{key}={value}"]
    if docker:
        return ["docker", "build", *options, str(REPO)]
    cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
    Path(cache).mkdir(parents=True, exist_ok=True)
    options += ["--volume", f"{cache}:/host-uv", "--build-arg", "UV_CACHE_DIR=/host-uv"]
    # Time stamps of 0 make a layer with the same content the same layer, so that it isn't imported
    # into a cluster twice.
    return [
        "buildah",
        "bud",
        "--isolation",
        "chroot",
        "--layers",
        "--timestamp",
        "0",
        *options,
        str(REPO),
    ]


def is_built(reference: str, docker: bool) -> bool:
    """Whether the image is in the local storage."""
    inspect = ["docker", "image"] if docker else ["buildah"]
    kind = [] if docker else ["--type", "image"]
    return command.output_of([*inspect, "inspect", *kind, reference]) is not None


def build(
    image: Image, reference: str, torch_index: str | None, progress: command.Progress
) -> None:
    """Build one image, the steps told as they begin."""
    docker = docker_answers()
    if not docker:
        for name in image.bases.values():
            base.ensure(base.BASES[name], progress)
    arguments = build_arguments(image, docker, torch_index)
    log = engine_env.cache_root() / "images" / f"{image.name}.log"
    progress.say(f"{image.name}: building {reference}, log: {log}")

    def tell(line: str) -> None:
        if step := STEP.match(line):
            words = re.sub(r"--(mount|from|root)=\S+ |\s+", " ", step["what"]).split()
            progress.say(f"{image.name}: {' '.join(words)[:90]}")

    make = build_command(image, reference, arguments, docker)
    command.run_logged(f"image {image.name}", make, log, on_line=tell)
    progress.say(f"{image.name}: built {reference}")


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the machine's build lock: two builds at once would do the same work twice."""
    path = engine_env.cache_root() / "images" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def reference_of(image: Image, torch_index: str | None) -> str:
    """The image's reference in the local storage, from the present content of the work tree."""
    arguments = build_arguments(image, docker_answers(), torch_index)
    return f"{REPOSITORY}/{image.name}:{content_hash(REPO, image, arguments)}"


def main() -> None:
    """Build, print or stream the named images."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="+", choices=[*IMAGES])
    parser.add_argument("--print", action="store_true", help="print the references, build nothing")
    parser.add_argument("--archive", action="store_true", help="write one image to standard output")
    parser.add_argument("--tag", help="a second tag, for example a version")
    parser.add_argument("--torch-index", help="index of torch's CPU wheels, see image/README.md")
    parser.add_argument("--rebuild", action="store_true", help="build even if the tag is there")
    args = parser.parse_args()
    progress = command.Progress()
    images = [IMAGES[name] for name in args.name]
    references = [reference_of(image, args.torch_index) for image in images]
    if not args.print:
        try:
            with one_at_a_time():
                for image, reference in zip(images, references, strict=True):
                    if args.rebuild or not is_built(reference, docker_answers()):
                        build(image, reference, args.torch_index, progress)
                    if args.tag:
                        retag = ["docker" if docker_answers() else "buildah", "tag", reference]
                        command.output_of([*retag, f"{REPOSITORY}/{image.name}:{args.tag}"])
        except command.CommandFailed as failure:
            raise SystemExit(f"images: {failure}") from None
    if args.archive:
        archive.write(references[0], sys.stdout.buffer, frozenset())
    else:
        print("\n".join(references))


if __name__ == "__main__":
    main()

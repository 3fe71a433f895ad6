"""The image store of a node: what is in it, what goes in, and how leftovers get out.

Images come straight from buildah's store through a pipe. They survive `down`, labelled with the id
that they were built under, so that a second run imports nothing.
"""

import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rwkv_cluster import errors, tools
from rwkv_cluster.process import Runner

SOURCE_LABEL = "rwkv-cluster/source-id"
IMPORT_SECONDS = 600
PURGE_SECONDS = 15
ARCHIVE = Path(__file__).resolve().parents[3] / "image" / "archive.py"


@dataclass(frozen=True)
class Store:
    """containerd's store, spoken to through ctr."""

    runner: Runner
    socket: Path
    binaries: Path

    def is_up(self) -> bool:
        """Whether containerd answers."""
        return self.socket.exists() and self.runner.try_run(*self._ctr("version"), seconds=5)

    def read_labels(self, reference: str) -> str | None:
        """Return an image's labels as ctr prints them, None when it isn't there."""
        listed = self._run("images", "ls", f"name=={reference}").splitlines()[1:]
        return listed[0].split()[-1] if listed else None

    def has(self, reference: str) -> bool:
        """Whether an image of that name is there."""
        return self.read_labels(reference) is not None

    def has_source(self, reference: str, source_id: str) -> bool:
        """Whether the image of that name was imported from this very build."""
        labels = self.read_labels(reference) or ""
        return f"{SOURCE_LABEL}={source_id}" in labels.split(",")

    def load_built(self, reference: str, source_id: str) -> None:
        """Import an image of buildah's store, but for the layers that are there already.

        Args:
            reference: Its name, complete with registry and tag.
            source_id: Its id in buildah's store.
        """
        there = self.runner.layout.run / "content.txt"
        there.write_text(self._run("content", "ls", "--quiet"))
        try:
            self._import(reference, source_id, "--without", str(there))
        except errors.ClusterError:
            # What was there may have been collected as garbage meanwhile.
            self._import(reference, source_id)
        if not self.has_source(reference, source_id):
            raise errors.ClusterError(f"{reference}: imported, but not found under that name")

    def _import(self, reference: str, source_id: str, *options: str) -> None:
        push = [sys.executable, str(ARCHIVE), reference, *options]
        labels = ("--label", f"{SOURCE_LABEL}={source_id}")
        pull = [*self._ctr("images", "import", *labels, "-")]
        with subprocess.Popen(push, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as pusher:
            assert pusher.stdout is not None and pusher.stderr is not None
            try:
                self.runner.run(*pull, stdin=pusher.stdout.fileno(), seconds=IMPORT_SECONDS)
            finally:
                pusher.stdout.close()
                complaint = pusher.stderr.read().decode().strip()
        if pusher.returncode != 0:
            raise errors.ClusterError(f"{reference}: could not be exported: {complaint}")

    def load_program(self, reference: str, program: Path) -> None:
        """Import an image that is one static program."""
        archive = self.runner.layout.run / "program.tar"
        archive.write_bytes(build_archive(reference, program.name, program.read_bytes()))
        self._run("images", "import", str(archive))
        archive.unlink()

    def purge(self) -> bool:
        """Kill and remove every task, container and sandbox; return whether there was one."""
        tasks = self._run("tasks", "ls", "--quiet").split()
        if tasks:
            self.runner.try_run(
                *self._ctr("tasks", "delete", "--force", *tasks), seconds=PURGE_SECONDS
            )
        found = bool(tasks)
        for kind in ("containers", "sandboxes"):
            listed = self._list(kind)
            found = found or bool(listed)
            if listed:
                self.runner.try_run(*self._ctr(kind, "rm", *listed), seconds=PURGE_SECONDS)
        return found

    def _list(self, kind: str) -> list[str]:
        lines = self._run(kind, "ls").splitlines()[1:]
        return [line.split()[0] for line in lines if line.strip()]

    def _run(self, *args: str) -> str:
        return self.runner.run(*self._ctr(*args))

    def _ctr(self, *args: str) -> Sequence[str]:
        # An absolute socket path; a relative one is taken for a host name.
        return (str(self.binaries / "ctr"), f"--address={self.socket}", "--namespace=k8s.io", *args)


def read_built_id(local: str) -> str:
    """Return the id of an image in buildah's store."""
    command = [tools.find("buildah"), "inspect", "--type=image", "--format={{.FromImageID}}", local]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise errors.UsageError(f"{local}: not in buildah's store; build it first")
    return done.stdout.strip()


def normalize(reference: str) -> str:
    """Return an image's whole name: registry, path and tag.

    What was built here without a registry in its name is `localhost/…`, for buildah and the
    kubelet alike.
    """
    head, slash, _ = reference.partition("/")
    has_registry = bool(slash) and (head == "localhost" or any(mark in head for mark in ".:"))
    name = reference if has_registry else f"localhost/{reference}"
    last = name.rpartition("/")[2]
    return name if ":" in last or "@" in last else f"{name}:latest"


def build_archive(reference: str, name: str, program: bytes) -> bytes:
    """Return a docker-archive of one image that holds one program and runs it."""
    layer = _tar({name: program}, mode=0o755)
    config = {
        "architecture": _architecture(),
        "os": "linux",
        "config": {"Entrypoint": [f"/{name}"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]
    return _tar(
        {
            "layer.tar": layer,
            "config.json": json.dumps(config).encode(),
            "manifest.json": json.dumps(manifest).encode(),
        },
        mode=0o644,
    )


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()

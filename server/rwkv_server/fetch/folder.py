"""A model's folder in the cache: half of it beside, all of it at its path, never something between.

    <path>                 the finished model and its manifest.json; appears by one rename
    <path>.partial/        what a download has so far
        <digest>.part      bytes of a file, named by what they will be: any commit may go on with it
        files/             files that are complete and checked
        checked.json       their digests
    <path>.lock/           see lock.py

Readers of <path> need neither lock nor library.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rwkv_server.durable import sync_path
from rwkv_server.errors import ModelNotFound
from rwkv_server.fetch.hub import RemoteFile

MANIFEST = "manifest.json"
_CHECKED = "checked.json"


@dataclass(frozen=True)
class Origin:
    """What a folder's model is said to be."""

    source: str
    repo: str
    revision: str


class Folder:
    """The files of one model at `path`, finished or not."""

    def __init__(self, path: Path, origin: Origin) -> None:
        """Touch nothing yet."""
        self.path = path
        self.origin = origin
        self.partial = path.with_name(path.name + ".partial")
        self.lock = path.with_name(path.name + ".lock")
        self.files = self.partial / "files"

    def read_manifest(self) -> dict[str, Any] | None:
        """The manifest of a finished model whose files are all there; None if it isn't so."""
        try:
            manifest: dict[str, Any] = json.loads((self.path / MANIFEST).read_bytes())
            for name, facts in manifest["files"].items():
                if (self.path / name).stat().st_size != facts["size"]:
                    return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return manifest

    def start(self) -> None:
        """Make the folder for partial files; what an earlier download left in it stays."""
        self.files.mkdir(parents=True, exist_ok=True)

    def part(self, file: RemoteFile) -> Path:
        """Where the bytes of `file` are collected."""
        stem = file.digest.replace(":", "-") or f"{file.name}-{file.size}"
        return self.partial / f"{stem}.part"

    def is_checked(self, file: RemoteFile) -> bool:
        """Whether `file` is complete, from this download or an earlier one."""
        try:
            same_size = (self.files / file.name).stat().st_size == file.size
        except OSError:
            return False
        return same_size and bool(file.digest) and self._checked().get(file.name) == file.digest

    def accept(self, file: RemoteFile, digest: str) -> None:
        """Take the collected bytes of `file` over as complete; `digest` was compared."""
        sync_path(self.part(file))
        os.replace(self.part(file), self.files / file.name)
        checked = {**self._checked(), file.name: digest}
        replacement = self.partial / f"{_CHECKED}.new"
        replacement.write_text(json.dumps(checked))
        os.replace(replacement, self.partial / _CHECKED)

    def collected(self, files: Iterable[RemoteFile]) -> int:
        """Bytes of `files` that are there already."""
        done = 0
        for file in files:
            if self.is_checked(file):
                done += file.size
            elif self.part(file).exists():
                done += min(file.size, self.part(file).stat().st_size)
        return done

    def publish(self, commit: str, files: Iterable[RemoteFile]) -> None:
        """Let the finished model appear at its path, with nothing in it but `files`."""
        wanted = {file.name for file in files}
        for found in self.files.iterdir():
            if found.is_file() and found.name not in wanted:
                found.unlink()
        checked = self._checked()
        manifest = {
            "version": 1,
            **vars(self.origin),
            "commit": commit,
            "files": {f.name: {"size": f.size, "digest": checked[f.name]} for f in files},
        }
        (self.files / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        sync_path(self.files / MANIFEST)
        sync_path(self.files)
        if self.path.exists():
            # Something is there that isn't this model whole: a copy that lost files.
            aside = self.path.with_name(f"{self.path.name}.broken-{uuid.uuid4().hex[:8]}")
            os.rename(self.path, aside)
            shutil.rmtree(aside, ignore_errors=True)
        os.rename(self.files, self.path)
        sync_path(self.path.parent)
        shutil.rmtree(self.partial, ignore_errors=True)

    def missing(self) -> ModelNotFound:
        """The error for a model that has to be there and isn't."""
        origin = self.origin
        return ModelNotFound(
            f"{origin.source} {origin.repo}@{origin.revision} is not in the cache and "
            f"spec.model.offline is true: {self.path} holds no finished download. "
            "Set offline to false once, or use a cache that has it.",
            found="half a download" if self.partial.exists() else "nothing",
            wanted=str(self.path),
        )

    def _checked(self) -> dict[str, str]:
        try:
            checked = json.loads((self.partial / _CHECKED).read_bytes())
        except (OSError, ValueError):
            return {}
        return checked if isinstance(checked, dict) else {}

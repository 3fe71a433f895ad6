"""The system calls of a store on a folder, each its own method, so that tests can lose the power.

Blocking; raises what the system raises. Nothing here knows of keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rwkv_server import durable
from rwkv_server.states.held import Piece


@dataclass(frozen=True)
class File:
    """One file of a folder's tree."""

    path: Path
    size: int
    modified: float


class Disk(Protocol):
    """What `volume` needs of an operating system."""

    def make_folder(self, path: Path) -> None:
        """Make one folder in an existing one; FileExistsError if it is there."""

    def write(self, path: Path, *pieces: Piece) -> None:
        """Make a new file of these pieces, not synced."""

    def sync(self, path: Path) -> None:
        """Wait until a file's content, or a folder's names, are on the disk."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; FileExistsError if that is taken."""

    def read(self, path: Path) -> bytes:
        """The whole content of a file; links are not followed."""

    def remove(self, path: Path) -> None:
        """Take a name away."""

    def files(self, folder: Path) -> Iterator[File]:
        """All files under a folder; none if there is no such folder."""


class SystemDisk:
    """The real one."""

    def make_folder(self, path: Path) -> None:
        """See `Disk`."""
        os.mkdir(path, 0o700)

    def write(self, path: Path, *pieces: Piece) -> None:
        """See `Disk`."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        handle = os.open(path, flags, 0o600)
        try:
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(handle, rest) :]
        finally:
            os.close(handle)

    def sync(self, path: Path) -> None:
        """See `Disk`."""
        durable.sync_path(path)

    def link(self, source: Path, target: Path) -> None:
        """See `Disk`."""
        os.link(source, target, follow_symlinks=False)

    def read(self, path: Path) -> bytes:
        """See `Disk`."""
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb", buffering=0) as file:
            return file.readall()

    def remove(self, path: Path) -> None:
        """See `Disk`."""
        os.unlink(path)

    def files(self, folder: Path) -> Iterator[File]:
        """See `Disk`."""
        try:
            entries = os.scandir(folder)
        except FileNotFoundError:
            return
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from self.files(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    yield File(Path(entry.path), found.st_size, found.st_mtime)

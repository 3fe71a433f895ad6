"""Bring one file over, however often the hub or the network gives up on the way, and check it.

Bytes that arrived are kept, also by a process that is killed, and the next try asks for the rest.
Tries are bounded in a row without a new byte, not in all: a slow, bad line still gets there.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import random
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from rwkv_server.errors import DiskFull, DownloadFailed, ServerError
from rwkv_server.fetch.folder import Folder
from rwkv_server.fetch.hub import Hub, HubUnavailable, RemoteFile
from rwkv_server.preflight import conversion

T = TypeVar("T")

TRIES = 6
LONGEST_WAIT = 30.0
# Left free for what else is on the volume, such as our own small files.
SPARE_BYTES = 16 << 20
_CHUNK = 4 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patience:
    """How often to try in a row, and how to wait between."""

    tries: int = TRIES
    sleep: Callable[[float], None] = time.sleep
    spread: Callable[[], float] = random.random

    def wait(self, failures: int) -> None:
        """Wait before the next try: 1, 2, 4 … seconds, spread so that pods don't come at once."""
        self.sleep(min(LONGEST_WAIT, 2.0 ** (failures - 1)) * (0.75 + self.spread() / 2))


class Meter(Protocol):
    """Who hears how a transfer goes."""

    def arrived(self, count: int) -> None:
        """`count` bytes more are there, or fewer; may raise to stop the transfer."""
        ...

    def verifying(self, file: RemoteFile) -> None:
        """All bytes are there and their digest is being computed."""
        ...


class PartFile:
    """A partial file that is being appended to, up to what it should be; tells how much it grew."""

    def __init__(self, file: BinaryIO, whole: RemoteFile, on_bytes: Callable[[int], None]) -> None:
        """Wrap `file`, opened for appending, that is to become `whole`."""
        self._file, self._whole, self._on_bytes = file, whole, on_bytes
        self._size = self.offset

    @property
    def offset(self) -> int:
        """Bytes in the file."""
        self._file.flush()
        return self._file.seek(0, 2)

    def write(self, data: bytes) -> int:
        """Append."""
        if self._size + len(data) > self._whole.size:
            promised = f"the {self._whole.size} bytes that the hub promises"
            raise HubUnavailable(f"{self._whole.name}: more arrives than {promised}")
        count = self._file.write(data)
        self._size += count
        self._on_bytes(count)
        return count

    def seek(self, position: int) -> int:
        """Go to `position`, for a truncate."""
        return self._file.seek(position)

    def tell(self) -> int:
        """The position."""
        return self._file.tell()

    def truncate(self) -> int:
        """Drop what lies behind the position."""
        position = self._file.tell()
        self._on_bytes(position - self._size)
        self._size = position
        return self._file.truncate()


def persist(attempt: Callable[[], T], patience: Patience) -> T:
    """The result of `attempt`, tried again while the hub is unavailable.

    Raises:
        DownloadFailed: it stayed so.
    """
    failures = 0
    while True:
        try:
            return attempt()
        except HubUnavailable as error:
            failures += 1
            if failures >= patience.tries:
                raise given_up(error, failures) from None
            log.warning("%s; try %d of %d follows", error, failures + 1, patience.tries)
            patience.wait(failures)


def fetch_file(
    hub: Hub,
    file: RemoteFile,
    commit: str,
    folder: Folder,
    meter: Meter,
    patience: Patience,
) -> None:
    """Bring `file` into the folder's partial files and check it.

    Raises:
        DownloadFailed: the hub stays unavailable, or gives other bytes than it promises.
        DiskFull: the volume is full.
        ServerError: what else the hub says.
    """
    part = folder.part(file)
    failures = mismatches = 0
    while True:
        before = _size(part)
        if before > file.size:
            part.unlink()
            meter.arrived(-file.size)
            before = 0
        try:
            if before < file.size or not part.exists():
                with part.open("ab") as handle:
                    hub.copy(file, commit, PartFile(handle, file, meter.arrived))
            meter.verifying(file)
            digest = check_digest(part, file)
            if digest is not None:
                folder.accept(file, digest)
                return
            mismatches += 1
            found = _digest(part, file.digest)
            meter.arrived(-_size(part))
            part.unlink()
            if mismatches > 1:
                raise _mismatch(hub.label, file, found)
            log.warning("%s: %s has the wrong digest; fetching it again", hub.label, file.name)
        except HubUnavailable as error:
            failures = 1 if _size(part) > before else failures + 1
            if failures >= patience.tries:
                raise given_up(error, failures) from None
            log.warning("%s; going on from byte %d", error, _size(part))
            patience.wait(failures)


def check_digest(path: Path, file: RemoteFile) -> str | None:
    """The digest of `path` if it is the promised one, or if none was promised; else None."""
    found = _digest(path, file.digest or "sha256:")
    return found if not file.digest or found == file.digest.lower() else None


def check_room(folder: Folder, files: Iterable[RemoteFile], label: str) -> None:
    """Raise DiskFull if the rest of `files` and a .pth's conversion don't fit on the volume."""
    files = list(files)
    wanted = sum(file.size for file in files) - folder.collected(files)
    if not conversion.is_converted(folder.files):
        wanted += sum(file.size for file in files if file.name.endswith(".pth"))
    free = shutil.disk_usage(folder.partial).free
    if wanted and wanted + SPARE_BYTES > free:
        raise DiskFull(
            f"{label}: {wanted} bytes are still to come and {free} are free at "
            f"{folder.path.parent}: use a larger volume for spec.model.cache, or make room",
            found=free,
            wanted=wanted + SPARE_BYTES,
        )


def given_up(error: HubUnavailable, tries: int) -> DownloadFailed:
    """The error after the last try."""
    return DownloadFailed(
        f"{error} ({tries} tries in a row). What has arrived is kept. Check the pod's network, "
        "proxy and the hub's endpoint in engine.podTemplate.env; it is tried again.",
        found=str(error)[:300],
        wanted="an answer from the hub",
    )


def disk_error(error: OSError, path: Path, label: str) -> ServerError:
    """What an error of the volume at `path` means."""
    if error.errno in _FULL:
        return DiskFull(
            f"{label}: the volume at {path} is full: use a larger one for spec.model.cache, or "
            "make room. What has arrived is kept.",
            found=error.strerror,
            wanted="room for the whole model",
        )
    return DownloadFailed(
        f"{label}: {error.filename or path} can't be written: {error.strerror}. The volume of "
        "spec.model.cache has to be writable for the pod's user: check readOnly and fsGroup.",
        found=error.strerror,
        wanted="a writable volume",
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _digest(path: Path, kind: str) -> str:
    name = kind.partition(":")[0]
    if name == "git":
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    else:
        digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return f"{name}:{digest.hexdigest()}"


def _mismatch(label: str, file: RemoteFile, found: str) -> DownloadFailed:
    return DownloadFailed(
        f"{label}: {file.name} arrived twice with another digest than the hub promises: a proxy "
        "or mirror on the way changes it. Nothing of it was kept.",
        found=found,
        wanted=file.digest,
    )

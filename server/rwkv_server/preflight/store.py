"""Probe the state store: write, read back and delete one small file or object.

A store that fails is reported, never fatal: conversations go on without saved states. These calls
block, for as long as a network volume hangs: callers bring the thread and the timeout.
"""

from __future__ import annotations

import errno
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rwkv_server.errors import StoreDenied, StoreError, StoreUnreachable
from rwkv_server.preflight import s3
from rwkv_server.settings import State

Kind = Literal["perPod", "ephemeral", "persistentVolumeClaim", "s3"]

DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
HOLDS = {
    "perPod": ("PerPod", "states are kept on this pod's own volume"),
    "ephemeral": ("Ephemeral", "states end with the pod: its directory is an emptyDir"),
    "persistentVolumeClaim": ("Shared", "states are kept on a volume that all engines share"),
    "s3": ("Shared", "states are kept in a bucket that all engines share"),
}


@dataclass(frozen=True)
class StoreReport:
    """What the last probe found; `reason` and `message` go into StateStoreReady."""

    kind: Kind
    ok: bool
    reason: str
    message: str


def probe_directory(path: Path, owner: str) -> None:
    """Write, sync, link, read and delete `path/.rwkv-probe.<owner>`.

    Raises:
        StoreDenied: this user may not write there.
        StoreUnreachable: anything else, with the system's own words.
    """
    probe = path / f".rwkv-probe.{owner}"
    content = secrets.token_bytes(64)
    try:
        _write_synced(probe, content)
        _sync_directory(path)
        _check_links(probe)
        found = probe.read_bytes()
        probe.unlink()
    except OSError as error:
        raise _translated(error, path) from None
    if found != content:
        raise StoreUnreachable(f"{path} gave back other bytes than were written to it")


def report_store(state: State, owner: str) -> StoreReport:
    """Probe the store and say what came out; `owner` is this pod's name."""
    try:
        if state.s3 is not None:
            s3.probe_bucket(state.s3, owner, secrets.token_bytes(64))
        elif state.path is not None:
            probe_directory(Path(state.path), owner)
    except StoreError as error:
        return StoreReport(state.store, False, error.reason, error.message)
    reason, message = HOLDS[state.store]
    return StoreReport(state.store, True, reason, message)


def place_of(state: State) -> str:
    """Where the store is, for messages."""
    return s3.place(state.s3) if state.s3 is not None else str(state.path)


def _write_synced(path: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    handle = os.open(path, flags, 0o600)
    try:
        os.write(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_links(probe: Path) -> None:
    """A state's name is a second name of what was written: the one way to take it only once."""
    second = probe.with_name(f"{probe.name}.link")
    second.unlink(missing_ok=True)
    try:
        os.link(probe, second)
    except OSError as error:
        raise StoreUnreachable(
            f"{probe.parent} has no hard links: {error.strerror}. States need them; use another "
            "kind of volume."
        ) from None
    second.unlink()


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _translated(error: OSError, path: Path) -> StoreError:
    words = f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, 'unknown')})"
    if error.errno in DENIED:
        return StoreDenied(
            f"{path} can't be written by uid {os.getuid()}: {words}. "
            "Check the volume's owner, fsGroup and read-only flag."
        )
    return StoreUnreachable(f"{path}: {words}")

"""One fetch from the lock to the published folder.

`fetch` returns when the model is there, whoever brought it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rwkv_server.errors import ConfigInvalid, DownloadFailed, ModelInvalid
from rwkv_server.fetch import choose, transfer
from rwkv_server.fetch.folder import Folder, Origin
from rwkv_server.fetch.hub import Hub, RemoteFile, Snapshot
from rwkv_server.fetch.lock import Lock, LockLost, Timing
from rwkv_server.fetch.progress import Progress
from rwkv_server.model import file_names
from rwkv_server.preflight import conversion, location, model, tokenizer
from rwkv_server.settings import Download, Model

log = logging.getLogger(__name__)

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Surroundings:
    """What a fetch runs in: who it is, how long it waits."""

    owner: str
    patience: transfer.Patience = field(default_factory=transfer.Patience)
    timing: Timing = field(default_factory=Timing)


def build_hub(source: str, download: Download, token: str | None) -> Hub:
    """The hub that engine.yaml names."""
    if source == "huggingFace":
        from rwkv_server.fetch.hugging_face import HuggingFace

        return HuggingFace(download.repo, download.revision, token)
    from rwkv_server.fetch.model_scope import ModelScope

    return ModelScope(download.repo, download.revision, token)


def fetch(wanted: Model, hub: Hub, progress: Progress, surroundings: Surroundings) -> None:
    """Have the model at `wanted.path`, by a download if need be.

    Raises:
        ServerError: why it can't be there.
    """
    download = wanted.download
    if download is None:
        raise ConfigInvalid(f"model.source {wanted.source} is nothing to fetch")
    folder = Folder(Path(wanted.path), Origin(wanted.source, download.repo, download.revision))
    if _is_there(folder):
        return
    if download.offline:
        raise folder.missing()
    try:
        _fetch_locked(wanted, download, hub, folder, progress, surroundings)
    except LockLost as error:
        raise DownloadFailed(f"{hub.label}: {error}; it is waited for at the next start") from None
    except OSError as error:
        raise transfer.disk_error(error, folder.path.parent, hub.label) from None


def _fetch_locked(
    wanted: Model,
    download: Download,
    hub: Hub,
    folder: Folder,
    progress: Progress,
    surroundings: Surroundings,
) -> None:
    lock = Lock(folder.lock, surroundings.owner, surroundings.timing)

    def wait(owner: str, note: dict[str, Any]) -> None:
        progress.enter("Waiting", f"{owner} downloads {hub.label}")
        progress.set_bytes(int(note.get("bytes") or 0), note.get("total") or None)

    if not lock.acquire(lambda: folder.read_manifest() is not None, wait):
        log.info("another pod has fetched %s to %s", hub.label, folder.path)
        return
    with lock:
        if not _is_there(folder):
            _download(wanted, download, hub, folder, progress, surroundings, lock)
        lock.remove()


def _is_there(folder: Folder) -> bool:
    manifest = folder.read_manifest()
    if manifest is not None:
        log.info("%s is there, commit %s", folder.path, manifest.get("commit"))
    return manifest is not None


def _download(
    wanted: Model,
    download: Download,
    hub: Hub,
    folder: Folder,
    progress: Progress,
    surroundings: Surroundings,
    lock: Lock,
) -> None:
    progress.enter("Resolving", f"asking for the files of {hub.label}")
    snapshot = transfer.persist(hub.list_files, surroundings.patience)
    files = choose.choose_files(snapshot.files, wanted.format, download.files, hub.label)
    _say(hub, snapshot, files)
    folder.start()
    transfer.check_room(folder, files, hub.label)
    progress.set_bytes(folder.collected(files), sum(file.size for file in files))
    meter = _Meter(progress, lock, hub.label)
    for number, file in enumerate(files, 1):
        progress.enter("Downloading", f"{hub.label}: {file.name} ({number} of {len(files)})")
        if not folder.is_checked(file):
            transfer.fetch_file(hub, file, snapshot.commit, folder, meter, surroundings.patience)
        _check_small(folder.files, file.name, {file.name for file in files}, hub.label)
    _convert(wanted, folder.files, progress)
    lock.check()
    folder.publish(snapshot.commit, files)
    log.info("fetched %s to %s, commit %s", hub.label, folder.path, snapshot.commit)


@dataclass(frozen=True)
class _Meter:
    """Tells the progress, and the lock's waiters, of what arrives; stops when the lock is lost."""

    progress: Progress
    lock: Lock
    label: str

    def arrived(self, count: int) -> None:
        self.lock.check()
        self.progress.add(count)
        self.lock.note(bytes=self.progress.done, total=self.progress.total or 0)

    def verifying(self, file: RemoteFile) -> None:
        self.lock.check()
        self.progress.enter("Verifying", f"{self.label}: checking {file.name}")


def _say(hub: Hub, snapshot: Snapshot, files: Sequence[RemoteFile]) -> None:
    total = sum(file.size for file in files)
    log.info(
        "%s is commit %s: %d files, %d bytes: %s",
        hub.label,
        snapshot.commit,
        len(files),
        total,
        ", ".join(file.name for file in files),
    )
    if not _COMMIT.fullmatch(hub.label.rpartition("@")[2]):
        log.info("the cache stays at this commit; name it as the revision to have it everywhere")


def _check_small(files: Path, name: str, names: set[str], label: str) -> None:
    """Refuse a model by its small files, before its gigabytes come.

    `name` is here now, of the `names` that will be.
    """
    tokenizers = {file_names.TOKENIZER, file_names.VOCABULARY}
    if name not in {file_names.CONFIG, *tokenizers}:
        return
    try:
        if name == file_names.CONFIG:
            model.read_config(files)
        if name in tokenizers or not names & tokenizers:
            if (files / file_names.CONFIG).exists():
                tokenizer.check_tokenizer(files, model.read_config(files).vocab_size)
    except ModelInvalid as error:
        told = error.message.replace(f"{files}/", "")
        raise ModelInvalid(f"{label}: {told}", found=error.found, wanted=error.wanted) from None


def _convert(wanted: Model, files: Path, progress: Progress) -> None:
    """Convert a .pth here, once for every pod that reads this volume."""
    names = wanted.download.files if wanted.download else None
    found = location.find_model(files, wanted.format, names)
    log.info("found the format %s", found.format)
    conversion.remove_others(found)
    if found.pth is None:
        return
    message = f"converting {found.pth.name} to safetensors"

    def converted(percent: int) -> None:
        progress.enter("Converting", message, percent)

    converted(0)
    conversion.converted_folder(found, converted)


def default_owner() -> str:
    """This pod's name."""
    return os.environ.get("POD_NAME") or os.uname().nodename

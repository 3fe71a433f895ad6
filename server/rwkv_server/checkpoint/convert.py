"""Turn an official .pth checkpoint into a model folder with safetensors in fla names.

Config and tokenizer come from beside the checkpoint, or the config from the tensors' shapes.
The folder appears whole or not at all, and never over another. `SHA256SUMS` in it is what
`sha256sum --check` reads.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy

from rwkv_server.checkpoint.archive import Archive, StoredTensor
from rwkv_server.checkpoint.safetensors_file import Entry, write_file
from rwkv_server.durable import sync_path
from rwkv_server.errors import DiskFull, ModelInvalid
from rwkv_server.model import config as model_config
from rwkv_server.model import file_names, pth_config, pth_names, weights

SUMS = "SHA256SUMS"
_CHUNK = 4 << 20


def convert(source: Path, target: Path, on_percent: Callable[[int], None]) -> None:
    """Write the checkpoint `source`, with the files beside it, to the new folder `target`.

    Raises:
        ModelInvalid: the checkpoint isn't an RWKV-7 that can be served, or `target` exists.
        DiskFull: there is too little room for the copy.
    """
    if target.exists():
        raise ModelInvalid(f"{target} exists already; nothing was written", wanted="a new folder")
    with ExitStack() as opened:
        archive = opened.enter_context(Archive(source))
        state = _open_state(source)
        if state is not None:
            opened.enter_context(state)
        entries, config = plan(archive, source, state)
        _check_room(target.parent, sum(entry.nbytes for entry in entries.values()))
        work = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}")
        try:
            work.mkdir(parents=True)
            _write(work, source, entries, config, on_percent)
            for path in (*work.iterdir(), work):
                sync_path(path)
            os.rename(work, target)
        except OSError as error:
            raise _translated(error, target) from None
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _open_state(source: Path) -> Archive | None:
    """The state-tuned start beside `source`, if there is one."""
    path = source.with_name(file_names.INITIAL_STATE)
    if path == source or not path.is_file():
        return None
    state = Archive(path)
    others = [name for name in state.tensors if not pth_names.is_initial_state(name)]
    if others or not state.tensors:
        state.__exit__(None, None, None)
        raise ModelInvalid(
            f"{path} holds something else than an initial state",
            found=others[0] if others else "no tensors",
            wanted=f"blocks.0.{pth_names.TIME_STATE} and its like",
        )
    return state


def plan(
    archive: Archive, source: Path, state: Archive | None = None
) -> tuple[dict[str, Entry], dict[str, Any]]:
    """What the safetensors file will hold, and config.json's content.

    An initial state in `state` takes the place of the checkpoint's own.

    Raises:
        ModelInvalid: a tensor is missing, misshapen or not part of an RWKV-7; names it.
    """
    owners = {name: archive for name in archive.tensors}
    owners |= {name: state for name in state.tensors} if state else {}
    shapes = {name: owner.tensors[name].shape for name, owner in owners.items()}
    config = read_config(source.parent) or pth_config.infer_config(shapes)
    targets = {}
    for name in owners:
        if pth_names.is_unused(name):
            continue
        target = pth_names.parse_name(name)
        if target is None:
            raise ModelInvalid(f"{source}: tensor {name} is not part of an RWKV-7", found=name)
        targets[name] = target
    if not targets:
        pth_config.infer_config(shapes)
    entries = {
        target.name: Entry(
            owners[name].tensors[name].dtype,
            target.shape(shapes[name]),
            partial(_load, owners[name], owners[name].tensors[name], target),
        )
        for name, target in targets.items()
    }
    parsed = model_config.parse_config(config)
    found = {name: entry.shape for name, entry in entries.items()}
    differences = weights.find_differences(parsed, found)
    if differences:
        names = {target.name: name for name, target in targets.items()}
        first = differences[0]
        official = names.get(first.tensor)
        raise ModelInvalid(
            f"{source}: tensor {first}" + (f" (in the checkpoint: {official})" if official else ""),
            found=None if first.found is None else list(first.found),
            wanted=None if first.wanted is None else list(first.wanted),
        )
    return entries, config


def _load(
    archive: Archive, tensor: StoredTensor, target: pth_names.Target
) -> numpy.ndarray[Any, Any]:
    elements = archive.read(tensor)
    if target.transposed:
        return elements.T
    return elements.reshape(target.shape(tensor.shape))


def read_config(folder: Path) -> dict[str, Any] | None:
    """The content of the folder's config.json, if there is one; ModelInvalid if it is broken."""
    path = folder / file_names.CONFIG
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        raise ModelInvalid(f"{path} is not JSON") from None
    if not isinstance(config, dict):
        raise ModelInvalid(f"{path} is not a JSON object")
    return config


def _write(
    work: Path,
    source: Path,
    entries: dict[str, Entry],
    config: dict[str, Any],
    on_percent: Callable[[int], None],
) -> None:
    total = max(1, sum(entry.nbytes for entry in entries.values()))
    for name in file_names.SIDE_FILES:
        if (source.parent / name).is_file():
            shutil.copyfile(source.parent / name, work / name)
    (work / file_names.CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    # Writing is the larger half; the digest reads the file once more.
    write_file(work / file_names.SINGLE, entries, lambda done: on_percent(done * 80 // total))
    sums = [f"{_sha256(path)}  {path.name}\n" for path in sorted(work.iterdir())]
    (work / SUMS).write_text("".join(sums))
    on_percent(100)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _check_room(folder: Path, wanted: int) -> None:
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < wanted:
        raise DiskFull(
            f"converting needs {wanted} bytes in {folder}, {free} are free. "
            "Make room, or convert the checkpoint beforehand with rwkv-server convert.",
            found=free,
            wanted=wanted,
        )


def _translated(error: OSError, target: Path) -> ModelInvalid | DiskFull:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(f"{target}: {error.strerror} while converting; make room")
    return ModelInvalid(f"{target} can't be written: {error.strerror}")

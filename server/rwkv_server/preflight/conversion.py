"""A .pth checkpoint is converted once; this finds the earlier result or makes it.

The copy lies beside the checkpoint where that can be written, else in the temporary folder. Its
name says which files it was made from, so that a changed checkpoint or template is converted anew.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from rwkv_server.checkpoint import convert
from rwkv_server.errors import ModelInvalid
from rwkv_server.model import file_names
from rwkv_server.preflight.location import Location

BESIDE = ".rwkv-converted"
# Raised when the converter writes other bytes for the same checkpoint.
_VERSION = 1

log = logging.getLogger(__name__)


def converted_folder(location: Location, on_percent: Callable[[int], None]) -> Path:
    """The folder with `location`'s weights as safetensors; the folder itself if they are already.

    Raises:
        ModelInvalid: the checkpoint can't be converted.
        DiskFull: no room for the copy.
    """
    if location.pth is None:
        return location.folder
    name = _name(location)
    places = [location.folder / BESIDE, Path(tempfile.gettempdir()) / "rwkv-converted"]
    for place in places:
        if (place / name / convert.SUMS).is_file():
            log.info("%s was converted before, to %s", location.pth, place / name)
            return place / name
    target = (places[0] if os.access(location.folder, os.W_OK) else places[1]) / name
    log.info("found a PTH checkpoint: converting %s to %s", location.pth, target)
    try:
        convert.convert(location.pth, target, on_percent)
    except ModelInvalid:
        # Another pod on the same volume may have been faster.
        if not (target / convert.SUMS).is_file():
            raise
    return target


def remove_others(location: Location) -> None:
    """Drop every conversion beside `location` but its own: cut short, or of another checkpoint.

    For a folder that nobody else converts in.
    """
    mine = _name(location) if location.pth is not None else None
    beside = location.folder / BESIDE
    for found in beside.iterdir() if beside.is_dir() else ():
        if found.name != mine:
            log.info("removing %s, an earlier conversion", found)
            shutil.rmtree(found, ignore_errors=True)


def is_converted(folder: Path) -> bool:
    """Whether a finished conversion lies in `folder`."""
    return any((folder / BESIDE).glob(f"*/{convert.SUMS}"))


def _name(location: Location) -> str:
    assert location.pth is not None
    parts = [str(_VERSION)]
    beside = (*file_names.SIDE_FILES, file_names.INITIAL_STATE)
    for file in (location.pth, *(location.folder / name for name in beside)):
        try:
            facts = file.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ModelInvalid(f"{file} can't be read: {error.strerror}") from None
        parts.append(f"{file.name} {facts.st_size} {facts.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

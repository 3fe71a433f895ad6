"""Bring what was written to the disk. Imports nothing of ours, so that all parts may use it."""

from __future__ import annotations

import os
from pathlib import Path


def sync_path(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk.

    Raises:
        OSError: it can't be opened or written.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

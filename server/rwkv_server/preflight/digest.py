"""The identity of a model: one SHA-256 over its weight files, in order of their names.

`cat model*.safetensors | sha256sum` gives the same, so that anybody can check it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from rwkv_server.errors import ModelInvalid

_CHUNK = 4 << 20


def hash_files(files: list[Path], on_hashed: Callable[[int], None]) -> str:
    """`sha256:<hex>` of the files' bytes; `on_hashed` hears the percentage, in steps of 1."""
    try:
        total = max(1, sum(file.stat().st_size for file in files))
        return "sha256:" + _hash(sorted(files), total, on_hashed)
    except OSError as error:
        raise ModelInvalid(f"{error.filename} can't be read: {error.strerror}") from None


def _hash(files: list[Path], total: int, on_hashed: Callable[[int], None]) -> str:
    hashed = hashlib.sha256()
    done = told = 0
    for file in files:
        with file.open("rb", buffering=0) as handle:
            while chunk := handle.read(_CHUNK):
                hashed.update(chunk)
                done += len(chunk)
                if done * 100 // total > told:
                    told = done * 100 // total
                    on_hashed(told)
    return hashed.hexdigest()

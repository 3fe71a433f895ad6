"""The identity of a model: one SHA-256 over its weight files, in order of their names.

`cat model*.safetensors | sha256sum` gives the same, so that anybody can check it. Where digests of
the single files came with them, those are compared on the way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from rwkv_server.errors import ModelInvalid

_CHUNK = 4 << 20


def hash_files(
    files: list[Path], promised: Mapping[str, str], on_hashed: Callable[[int], None]
) -> str:
    """`sha256:<hex>` of the files' bytes.

    Args:
        files: the weight files.
        promised: file name → SHA-256 in hex that the file has to have.
        on_hashed: hears the percentage, in steps of 1.

    Raises:
        ModelInvalid: a file can't be read, or isn't the one that was promised.
    """
    try:
        total = max(1, sum(file.stat().st_size for file in files))
        return "sha256:" + _hash(sorted(files), promised, total, on_hashed)
    except OSError as error:
        raise ModelInvalid(f"{error.filename} can't be read: {error.strerror}") from None


def _hash(
    files: list[Path],
    promised: Mapping[str, str],
    total: int,
    on_hashed: Callable[[int], None],
) -> str:
    hashed = hashlib.sha256()
    done = told = 0
    for file in files:
        # The only file's digest is the whole model's: no need to hash it twice.
        alone = len(files) == 1 or file.name not in promised
        own = hashed if alone else hashlib.sha256()
        with file.open("rb", buffering=0) as handle:
            while chunk := handle.read(_CHUNK):
                hashed.update(chunk)
                if own is not hashed:
                    own.update(chunk)
                done += len(chunk)
                if done * 100 // total > told:
                    told = done * 100 // total
                    on_hashed(told)
        if file.name in promised and own.hexdigest() != promised[file.name]:
            raise ModelInvalid(
                f"{file} is damaged or was changed: it has another digest than it came with. "
                "Fetch or copy it again.",
                found=f"sha256:{own.hexdigest()}",
                wanted=f"sha256:{promised[file.name]}",
            )
    return hashed.hexdigest()

"""Names, types and shapes of the tensors in safetensors files, read from their headers alone.

No tensor is loaded: a header is a length, then JSON. Sizes come from strangers, so they are bounded
before they are believed, and a file that is shorter than its header says is found here and not as
a crash of the engine.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rwkv_server.errors import ModelInvalid
from rwkv_server.model import file_names
from rwkv_server.preflight import json_file

MAX_HEADER_BYTES = 64 << 20
INDEX = file_names.INDEX
SINGLE = file_names.SINGLE
BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I16": 16, "I8": 8,
    "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8,
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """One tensor as its file's header describes it."""

    file: str
    dtype: str
    shape: tuple[int, ...]


def weight_files(model: Path) -> list[Path]:
    """The model's weight files: the index's shards, else all there are, as vLLM loads them.

    Raises:
        ModelInvalid: the index is broken, or other weights lie beside `model.safetensors`.
    """
    index = model / INDEX
    if index.exists():
        return [model / name for name in sorted(set(read_index(index).values()))]
    files = sorted(model.glob("*.safetensors"))
    surplus = [file.name for file in files if file.name != SINGLE]
    if surplus and len(surplus) < len(files):
        raise ModelInvalid(
            f"{model} holds {surplus[0]} beside {SINGLE}, and no {INDEX} says which are the "
            "model's weights: take the other files away",
            found=", ".join([SINGLE, *surplus[:8]]),
            wanted=SINGLE,
        )
    return files


def read_index(path: Path) -> dict[str, str]:
    """Tensor name → shard file name of a `*.safetensors.index.json`."""
    weight_map = json_file.read_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelInvalid(f"{path}: weight_map holds no tensors")
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not re.fullmatch(r"[\w.\-]+\.safetensors", name):
            raise ModelInvalid(
                f"{path}: tensor {tensor} is said to be in {name!r}",
                found=str(name)[:200],
                wanted="a .safetensors file name in the same directory",
            )
    return weight_map


def read_tensors(files: list[Path]) -> dict[str, Tensor]:
    """All tensors of `files` by name.

    Raises:
        ModelInvalid: a file is broken, or two files hold the same tensor.
    """
    tensors: dict[str, Tensor] = {}
    for file in files:
        for name, tensor in read_header(file).items():
            if name in tensors:
                raise ModelInvalid(f"tensor {name} is in {tensors[name].file} and in {file.name}")
            tensors[name] = tensor
    return tensors


def read_header(file: Path) -> dict[str, Tensor]:
    """The tensors of one safetensors file; ModelInvalid where header and size don't agree."""
    try:
        facts = file.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise ModelInvalid(f"{file} is not a regular file")
        with file.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            if facts.st_size < 8 or not 2 <= length <= min(facts.st_size - 8, MAX_HEADER_BYTES):
                raise ModelInvalid(
                    f"{file} is not a safetensors file, or its copy was cut short",
                    found=f"a header of {length} bytes in a file of {facts.st_size}",
                    wanted="a header that fits the file",
                )
            raw = handle.read(length)
    except OSError as error:
        raise ModelInvalid(f"{file} can't be read: {error.strerror}") from None
    entries = _parse(raw, file)
    tensors = {name: _tensor(name, entry, file) for name, entry in entries.items()}
    _check_size(entries, facts.st_size - 8 - length, file)
    return tensors


def _parse(raw: bytes, file: Path) -> dict[str, Mapping[str, Any]]:
    try:
        header = json.loads(raw)
        header.pop("__metadata__", None)
        return {str(name): dict(entry) for name, entry in header.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ModelInvalid(f"{file}: the safetensors header is not a JSON object") from None


def _tensor(name: str, entry: Mapping[str, Any], file: Path) -> Tensor:
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if (
        not isinstance(dtype, str)
        or dtype not in BITS
        or not _counts(shape)
        or not _counts(offsets)
        or len(offsets) != 2
    ):
        raise ModelInvalid(
            f"{file}: tensor {name} has no usable dtype, shape and data_offsets in the header"
        )
    wanted = math.prod(shape) * BITS[dtype] // 8
    if offsets[1] - offsets[0] != wanted:
        raise ModelInvalid(
            f"{file}: tensor {name} of {dtype} {list(shape)} has the wrong number of bytes",
            found=offsets[1] - offsets[0],
            wanted=wanted,
        )
    return Tensor(file.name, dtype, tuple(shape))


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_size(entries: Mapping[str, Mapping[str, Any]], found: int, file: Path) -> None:
    wanted = 0
    for begin, end in sorted(entry["data_offsets"] for entry in entries.values()):
        if begin != wanted:
            raise ModelInvalid(f"{file}: tensors overlap or leave a hole at byte {wanted}")
        wanted = end
    if found != wanted:
        raise ModelInvalid(
            f"{file} has the wrong size: its copy was cut short or changed",
            found=f"{found} bytes of tensors",
            wanted=f"{wanted} bytes of tensors",
        )

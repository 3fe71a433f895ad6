"""A snapshot as a safetensors file, and back into a slot. Pure; neither torch nor numpy's floats.

A slot's bytes are the file's data as they are: only the header is made or read. What comes from
outside is looked at before a byte of it is copied.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from rwkv_server.states.errors import StateCorrupt, StateIncompatible
from rwkv_server.states.layout import StateLayout, TensorSpec

_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 8
_MOST_HEADER = 16 << 20
_METADATA = "__metadata__"
_NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
# What infinity is as an integer, of each sign: NaNs are larger, finite numbers smaller. Integers,
# because the engine's processes may flush small floats to zero, and numpy warns of that.
_INFINITIES: dict[str, tuple[np.signedinteger[Any], np.unsignedinteger[Any]]] = {
    "float32": (np.int32(0x7F800000), np.uint32(0xFF800000)),
    "bfloat16": (np.int16(0x7F80), np.uint16(0xFF80)),
    "float16": (np.int16(0x7C00), np.uint16(0xFC00)),
}


def to_safetensors(layout: StateLayout, slot: memoryview, metadata: Mapping[str, str]) -> bytes:
    """The file of a slot's snapshot."""
    return b"".join((make_header(layout, metadata), slot))


def make_header(layout: StateLayout, metadata: Mapping[str, str]) -> bytes:
    """What comes before a slot's bytes in the file of its snapshot."""
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    header |= {tensor.name: _entry(tensor) for tensor in layout.tensors}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return _LENGTH.pack(len(text)) + text


def _entry(tensor: TensorSpec) -> dict[str, Any]:
    place = [tensor.offset, tensor.offset + tensor.nbytes]
    return {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}


def read_metadata(content: bytes) -> dict[str, str]:
    """A file's metadata, without its tensors.

    Raises:
        StateCorrupt: this is no safetensors file.
    """
    return _metadata(_read_header(content)[0])


def from_safetensors(layout: StateLayout, content: bytes, into: memoryview) -> dict[str, str]:
    """Put a file's tensors into a slot and return its metadata.

    Raises:
        StateCorrupt: this is no whole safetensors file.
        StateIncompatible: it has other tensors than this model's states.
    """
    header, start = _read_header(content)
    metadata = _metadata(header)
    found = {name: entry for name, entry in header.items() if name != _METADATA}
    wanted = {tensor.name: tensor for tensor in layout.tensors}
    for name in sorted(wanted.keys() ^ found.keys()):
        has, needs = ("no", "one") if name in wanted else ("a", "none")
        raise StateIncompatible(
            f"the snapshot has {has} tensor {name[:80]}, this model's states have {needs}"
        )
    places = {name: _place(wanted[name], entry) for name, entry in found.items()}
    end = 0
    for name in sorted(places, key=places.__getitem__):
        if places[name] != end:
            raise _corrupt(f"tensor {name} begins at byte {places[name]}, wanted {end}")
        end += wanted[name].nbytes
    if len(content) - start != end:
        raise _corrupt(f"it has {len(content) - start} bytes of tensors, wanted {end}")
    data = memoryview(content)[start:]
    for name, tensor in wanted.items():
        place = places[name]
        into[tensor.offset : tensor.offset + tensor.nbytes] = data[place : place + tensor.nbytes]
    return metadata


def check_finite(layout: StateLayout, slot: memoryview) -> None:
    """Refuse infinities and NaNs, from which no engine could go on.

    As fast as memory is read, so that whoever saves can afford it: 0.1 ms for 2.4 MB.

    Raises:
        StateCorrupt: naming the first tensor with one.
    """
    for tensor in layout.tensors:
        part = slot[tensor.offset : tensor.offset + tensor.nbytes]
        infinities = _INFINITIES[tensor.dtype]
        if any(np.frombuffer(part, one.dtype).max() >= one for one in infinities):
            raise _corrupt(f"tensor {tensor.name} holds a value that is no finite number")


def _corrupt(what: str) -> StateCorrupt:
    return StateCorrupt(f"the snapshot can't be used: {what}")


def _read_header(content: bytes) -> tuple[dict[str, Any], int]:
    """The header, and where the tensors begin."""
    if len(content) < _LENGTH.size:
        raise _corrupt(f"{len(content)} bytes are no safetensors file")
    (length,) = _LENGTH.unpack_from(content)
    start = _LENGTH.size + length
    if length > _MOST_HEADER or start > len(content):
        raise _corrupt(f"a header of {length} bytes, in a file of {len(content)}")
    try:
        header = json.loads(content[_LENGTH.size : start], object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise _corrupt("its header is no JSON, or says something twice") from None
    if not isinstance(header, dict):
        raise _corrupt("its header is no table")
    return header, start


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError
    return table


def _metadata(header: dict[str, Any]) -> dict[str, str]:
    metadata = header.get(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _corrupt("its metadata is no table of strings")
    return metadata


def _place(tensor: TensorSpec, entry: object) -> int:
    """Where a tensor's bytes begin, once type, shape and size are what they must be."""
    if not isinstance(entry, dict):
        raise _corrupt(f"tensor {tensor.name} has no description")
    for field, wanted in (("dtype", _NAMES[tensor.dtype]), ("shape", list(tensor.shape))):
        if entry.get(field) != wanted:
            text = repr(entry.get(field))[:80]
            raise StateIncompatible(
                f"tensor {tensor.name} of the snapshot has {field} {text}, this model's states "
                f"have {wanted}"
            )
    match entry.get("data_offsets"):
        case [int(begin), int(end)] if end - begin == tensor.nbytes and begin >= 0:
            return begin
    raise _corrupt(f"tensor {tensor.name} has bytes of another size than its shape")

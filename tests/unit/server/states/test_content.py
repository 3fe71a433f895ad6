from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rwkv_server.states.content import (
    check_finite,
    from_safetensors,
    read_metadata,
    to_safetensors,
)
from rwkv_server.states.errors import StateCorrupt, StateError, StateIncompatible
from rwkv_server.states.layout import StateLayout, TensorSpec

LAYOUT = StateLayout(
    (
        TensorSpec("layers.0.att_shift", (4,), "bfloat16", 0),
        TensorSpec("layers.0.wkv", (1, 2, 2), "float32", 8),
        TensorSpec("layers.0.ffn_shift", (4,), "float16", 24),
    ),
    "bfloat16",
    1,
)
SLOT = bytes(range(LAYOUT.nbytes))


def a_file(header: Any, data: bytes = SLOT) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def a_header() -> dict[str, Any]:
    content = to_safetensors(LAYOUT, memoryview(SLOT), {"a": "b"})
    (length,) = struct.unpack_from("<Q", content)
    return dict(json.loads(content[8 : 8 + length]))


def test_a_slot_comes_back() -> None:
    content = to_safetensors(LAYOUT, memoryview(SLOT), {"record": '{"ref": "ü"}'})
    into = bytearray(LAYOUT.nbytes)
    assert from_safetensors(LAYOUT, content, memoryview(into)) == {"record": '{"ref": "ü"}'}
    assert into == SLOT
    assert read_metadata(content) == {"record": '{"ref": "ü"}'}
    assert to_safetensors(LAYOUT, memoryview(SLOT), {}) != content


def test_others_read_it() -> None:
    layout = StateLayout(LAYOUT.tensors[1:], "float16", 1)
    moved = tuple(TensorSpec(t.name, t.shape, t.dtype, t.offset - 8) for t in layout.tensors)
    content = to_safetensors(StateLayout(moved, "float16", 1), memoryview(SLOT[8:]), {"a": "b"})
    found = safetensors.numpy.load(content)
    assert found["layers.0.wkv"].tobytes() == SLOT[8:24]
    assert found["layers.0.wkv"].shape == (1, 2, 2)
    assert found["layers.0.ffn_shift"].dtype == np.float16


def test_we_read_what_others_write_in_another_order() -> None:
    tensors = {
        "layers.0.wkv": np.arange(4, dtype=np.float32).reshape(1, 2, 2),
        "layers.0.ffn_shift": np.arange(4, dtype=np.float16),
        "layers.0.att_shift": np.arange(4, dtype=np.float16),
    }
    layout = StateLayout(
        (TensorSpec("layers.0.att_shift", (4,), "float16", 0), *LAYOUT.tensors[1:]), "float16", 1
    )
    into = bytearray(layout.nbytes)
    assert from_safetensors(layout, safetensors.numpy.save(tensors), memoryview(into)) == {}
    wanted = b"".join(tensors[t.name].tobytes() for t in layout.tensors)
    assert into == wanted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers.0.wkv": None}, "no tensor layers.0.wkv"),
        ({"layers.1.wkv": {}}, "a tensor layers.1.wkv, this model's states have none"),
        ({"layers.0.wkv": {"dtype": "F16"}}, r"layers.0.wkv .* dtype 'F16', .* have F32"),
        ({"layers.0.wkv": {"shape": [1, 4]}}, r"shape \[1, 4\], .* have \[1, 2, 2\]"),
        ({"layers.0.wkv": {"shape": [True, 2, 2], "dtype": "F64"}}, "dtype 'F64'"),
    ],
    ids=str,
)
def test_another_model_s_snapshot_is_told_apart(change: dict[str, Any], message: str) -> None:
    header = a_header()
    for name, entry in change.items():
        header[name] = header.get(name, {}) | (entry or {})
        if entry is None:
            del header[name]
    with pytest.raises(StateIncompatible, match=message):
        from_safetensors(LAYOUT, a_file(header), memoryview(bytearray(LAYOUT.nbytes)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes are no safetensors"),
        (struct.pack("<Q", 1 << 60) + b"{}", "a header of"),
        (a_file(b"{"), "no JSON"),
        (a_file(b"[]"), "no table"),
        (a_file(b'{"a": 1, "a": 1}'), "says something twice"),
        (a_file(b"[" * 100_000), "no JSON"),
        (a_file({"__metadata__": {"a": 1}}), "metadata"),
        (a_file(a_header(), SLOT[:-1]), "31 bytes of tensors, wanted 32"),
        (a_file(a_header(), SLOT + b"x"), "33 bytes of tensors, wanted 32"),
        (a_file(a_header() | {"layers.0.wkv": 3}), "no description"),
    ],
    ids=range(10),
)
def test_no_whole_file(content: bytes, message: str) -> None:
    with pytest.raises(StateCorrupt, match=message):
        from_safetensors(LAYOUT, content, memoryview(bytearray(LAYOUT.nbytes)))


@pytest.mark.parametrize(
    "place",
    [[0, 16], [8, 25], [-16, 0], [16, 32], [8.0, 24.0], [8], None, [1 << 62, (1 << 62) + 16]],
)
def test_bytes_in_other_places_are_refused(place: Any) -> None:
    header = a_header()
    header["layers.0.wkv"]["data_offsets"] = place
    with pytest.raises(StateCorrupt):
        from_safetensors(LAYOUT, a_file(header), memoryview(bytearray(LAYOUT.nbytes)))


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # other work on the machine
)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=4))
def test_a_changed_file_is_refused_or_still_whole(where: int, new: bytes) -> None:
    content = to_safetensors(LAYOUT, memoryview(SLOT), {"a": "b"})
    where %= len(content)
    changed = content[:where] + new + content[where + len(new) :]
    into = bytearray(LAYOUT.nbytes)
    try:
        from_safetensors(LAYOUT, changed, memoryview(into))
    except StateError:
        assert into == bytes(LAYOUT.nbytes), "nothing is copied from a file that is refused"


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, -np.nan])
@pytest.mark.parametrize("name", ["layers.0.wkv", "layers.0.ffn_shift", "layers.0.att_shift"])
def test_infinities_and_nans(bad: float, name: str) -> None:
    slot = bytearray(LAYOUT.nbytes)
    check_finite(LAYOUT, memoryview(slot))
    (tensor,) = (t for t in LAYOUT.tensors if t.name == name)
    kind: Any = np.float16 if tensor.dtype == "float16" else np.float32
    value = np.array([bad], dtype=kind).tobytes()[-2 if tensor.dtype == "bfloat16" else 0 :]
    end = tensor.offset + tensor.nbytes
    slot[end - len(value) : end] = value
    with pytest.raises(StateCorrupt, match=name):
        check_finite(LAYOUT, memoryview(slot))


def test_large_and_small_numbers_are_finite() -> None:
    slot = bytearray(LAYOUT.nbytes)
    numbers = np.array([3.4e38, -3.4e38, 1e-45, -0.0], dtype=np.float32).tobytes()
    slot[8:24] = numbers
    slot[:8] = np.array([0x7F7F, 0xFF7F, 1, 0x8000], dtype=np.uint16).tobytes()
    slot[24:] = np.array([65504, -65504, 6e-8, -0.0], dtype=np.float16).tobytes()
    check_finite(LAYOUT, memoryview(slot))

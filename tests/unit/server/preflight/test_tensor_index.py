from __future__ import annotations

import json

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from rwkv_server.errors import ModelInvalid
from rwkv_server.preflight import tensor_index


def header(entries, data=b"", length=None):
    raw = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


def test_names_types_and_shapes_as_the_library_writes_them(tmp_path):
    file = tmp_path / "model.safetensors"
    save_file({"a": numpy.zeros((2, 3), "float16"), "b": numpy.zeros((), "float32")}, file)
    tensors = tensor_index.read_header(file)
    assert tensors["a"] == tensor_index.Tensor("model.safetensors", "F16", (2, 3))
    assert tensors["b"].shape == ()


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a safetensors file"),
        (b"\x00" * 7, "not a safetensors file"),
        (b"\xff" * 64, "not a safetensors file"),
        (header({}, length=1 << 40), "not a safetensors file"),
        (header(b"[1]"), "not a JSON object"),
        (header(b"{{{{"), "not a JSON object"),
        (header(b'{"a": 1}'), "not a JSON object"),
        (header(b"[" * 100_000), "not a JSON object"),
        (header({"a": {"dtype": "F32", "shape": [1]}}), "tensor a has no usable"),
        (header({"a": entry([-1], 0, 4)}), "tensor a has no usable"),
        (header({"a": entry([1], 0, 4, "F99")}), "tensor a has no usable"),
        (header({"a": entry([1], 0, 4, ["F32"])}), "tensor a has no usable"),
        (header({"a": entry([2], 0, 4)}, b"0000"), "tensor a of F32"),
        (header({"a": entry([1], 0, 4)}, b"00"), "cut short"),
        (header({"a": entry([1], 0, 4)}, b"0" * 9), "wrong size"),
        (header({"a": entry([1], 0, 4), "b": entry([1], 0, 4)}, b"0" * 4), "overlap"),
        (header({"a": entry([1], 4, 8)}, b"0" * 8), "hole"),
        (header({"a": entry([10**30], 0, 4 * 10**30)}, b"0"), "wrong size"),
    ],
)
def test_broken_files_are_refused_by_name(content, words, tmp_path):
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(ModelInvalid, match=words) as caught:
        tensor_index.read_header(file)
    assert "model.safetensors" in caught.value.message


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("fuzz") / "x.safetensors"
    file.write_bytes(header(content, b"data"))
    try:
        tensor_index.read_header(file)
    except ModelInvalid:
        pass


def test_a_directory_in_place_of_a_file_is_refused(tmp_path):
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(ModelInvalid, match="not a regular file"):
        tensor_index.read_header(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/passwd", "model.bin", "a/b.safetensors", 7, None]
)
def test_an_index_cannot_point_outside(name, tmp_path):
    index = tmp_path / tensor_index.INDEX
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ModelInvalid, match="tensor a is said to be in"):
        tensor_index.weight_files(tmp_path)


def test_without_an_index_only_what_vllm_would_load_is_the_model(tmp_path):
    for name in ("a.safetensors", "b.safetensors"):
        (tmp_path / name).touch()
    found = tensor_index.weight_files(tmp_path)
    assert [file.name for file in found] == ["a.safetensors", "b.safetensors"]
    (tmp_path / tensor_index.SINGLE).touch()
    with pytest.raises(ModelInvalid, match=r"holds a\.safetensors beside model\.safetensors"):
        tensor_index.weight_files(tmp_path)
    (tmp_path / tensor_index.INDEX).write_text('{"weight_map": {"t": "b.safetensors"}}')
    assert tensor_index.weight_files(tmp_path) == [tmp_path / "b.safetensors"]


def test_a_tensor_in_two_files_is_refused(tmp_path):
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    for file in files:
        save_file({"x": numpy.zeros(1)}, file)
    with pytest.raises(ModelInvalid, match=r"tensor x is in a.safetensors and in b.safetensors"):
        tensor_index.read_tensors(files)

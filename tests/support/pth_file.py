"""Writes .pth checkpoints as torch.save does, without torch: a zip of a pickle and raw storages."""

from __future__ import annotations

import io
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import model_files
import numpy
from safetensors.numpy import load_file

STORAGES = {
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "uint16": "BFloat16Storage",
    "float64": "DoubleStorage",
}


class _Call:
    """Pickles as a call of a global by name, which need not exist here."""

    def __init__(self, module: str, name: str, *arguments: Any) -> None:
        self.module, self.name, self.arguments = module, name, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _named(self.module, self.name), self.arguments


class _Storage:
    def __init__(self, key: str, array: numpy.ndarray) -> None:
        self.key, self.array = key, array


def storage(key: str, array: numpy.ndarray) -> Any:
    """A storage to pass to a `call`; its bytes are not written."""
    return _Storage(key, array)


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, _Storage):
            kind = _named("torch", STORAGES[str(value.array.dtype)])
            return ("storage", kind, value.key, "cpu", value.array.size)
        return None


def _named(module: str, name: str) -> Any:
    """A class that pickle writes as `module.name`."""
    return getattr(sys.modules[module], name)


def call(module: str, name: str, *arguments: Any) -> _Call:
    """An object whose pickle calls `module.name(*arguments)` when it is read."""
    return _Call(module, name, *arguments)


def write(path: Path, entries: Mapping[str, Any]) -> Path:
    """Write arrays as tensors and all other values as they are."""
    storages: list[_Storage] = []
    table: dict[str, Any] = OrderedDict()
    for name, value in entries.items():
        if isinstance(value, numpy.ndarray):
            storage = _Storage(str(len(storages)), numpy.ascontiguousarray(value))
            storages.append(storage)
            strides = tuple(step // value.itemsize for step in storage.array.strides)
            shape = storage.array.shape
            value = _Call(
                "torch._utils", "_rebuild_tensor_v2",
                storage, 0, shape, strides, False, OrderedDict(),
            )  # fmt: skip
        table[name] = value
    _write_zip(path, _pickled(table), {s.key: s.array.tobytes() for s in storages})
    return path


def write_raw(path: Path, pickled: bytes) -> Path:
    """Write a checkpoint around any pickle."""
    _write_zip(path, pickled, {})
    return path


def _pickled(table: Any) -> bytes:
    names = {
        "torch": list(STORAGES.values()),
        "torch._utils": ["_rebuild_tensor_v2", "_rebuild_parameter"],
    }
    absent = {module: types.ModuleType(module) for module in names if module not in sys.modules}
    for module, stand_in in absent.items():
        for name in names[module]:
            kind = type(name, (), {"__module__": module})
            kind.__qualname__ = name
            setattr(stand_in, name, kind)
    sys.modules.update(absent)
    try:
        buffer = io.BytesIO()
        _Pickler(buffer, protocol=2).dump(table)
        return buffer.getvalue()
    finally:
        for module in absent:
            del sys.modules[module]


def _write_zip(path: Path, pickled: bytes, storages: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("model/data.pkl", pickled)
        archive.writestr("model/byteorder", b"little")
        for key, content in storages.items():
            archive.writestr(f"model/data/{key}", content)
        archive.writestr("model/version", b"3\n")


def official_tensors(dtype: str = "float32") -> dict[str, numpy.ndarray]:
    """The small model of `model_files` under official names, its elements all different."""
    random = numpy.random.default_rng(7)
    tensors = {}
    for name, zeros in model_files.tensors().items():
        value = random.standard_normal(zeros.shape).astype(dtype)
        official = official_name(name)
        low_rank = "_lora." in name and name.endswith("weight")
        tensors[official] = value.T.copy() if low_rank else _padded(official, value)
    width = model_files.CONFIG["hidden_size"]
    for letter, shape in (("v0", (1, 1, width)), ("v1", (width, 4)), ("v2", (4, width))):
        tensors[f"blocks.0.att.{letter}"] = numpy.zeros(shape, dtype)
    return tensors


def _padded(name: str, value: numpy.ndarray) -> numpy.ndarray:
    """Vectors of a block have shape (1, 1, width) in official files."""
    if value.ndim == 1 and name.startswith("blocks.") and ".ln" not in name:
        return value.reshape(1, 1, -1)
    return value


def official_name(name: str) -> str:
    """The official name of a tensor in the fla format."""
    whole = {
        "model.embeddings.weight": "emb.weight",
        "lm_head.weight": "head.weight",
        "model.norm.weight": "ln_out.weight",
        "model.norm.bias": "ln_out.bias",
    }
    if name in whole:
        return whole[name]
    _, _, layer, rest = name.split(".", 3)
    for fla, official in (
        ("pre_norm", "ln0"), ("attn_norm", "ln1"), ("ffn_norm", "ln2"), ("g_norm", "ln_x"),
        ("r_proj", "receptance"), ("k_proj", "key"), ("v_proj", "value"), ("o_proj", "output"),
        ("_lora.lora.2.bias", "0"), ("_lora.lora.0.weight", "1"), ("_lora.lora.2.weight", "2"),
        ("attn.", "att."),
    ):  # fmt: skip
        rest = rest.replace(fla, official)
    return f"blocks.{layer}.{rest}"


def write_from_model(model: Path, target: Path) -> Path:
    """Write the fp32 or fp16 safetensors model in `model` as an official checkpoint."""
    official = {}
    for name, value in load_file(model / "model.safetensors").items():
        low_rank = "_lora." in name and name.endswith("weight")
        named = official_name(name)
        official[named] = value.T.copy() if low_rank else _padded(named, value)
    return write(target, official)

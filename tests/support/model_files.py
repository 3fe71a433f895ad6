"""A complete model directory of a few kilobytes, without torch, for tests of the model check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
from safetensors.numpy import save_file

from rwkv_server.model import weights
from rwkv_server.model.config import RWKV7Config, parse_config

CONFIG: dict[str, Any] = {
    "architectures": ["RWKV7ForCausalLM"],
    "model_type": "rwkv7",
    "vocab_size": 12,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "head_dim": 64,
    "intermediate_size": 64,
    "decay_low_rank_dim": 4,
    "a_low_rank_dim": 4,
    "v_low_rank_dim": 4,
    "gate_low_rank_dim": 4,
}


def config() -> RWKV7Config:
    """The parsed CONFIG."""
    return parse_config(CONFIG)


def tensors(dtype: str = "float32") -> dict[str, numpy.ndarray]:
    """All weights, zero."""
    shapes = weights.expected_tensors(config())
    return {name: numpy.zeros(shape, dtype) for name, shape in shapes.items()}


def write_model(path: Path, dtype: str = "float32") -> Path:
    """Write config, tokenizer and one weight file into a new directory."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    write_tokenizer(path, largest=11)
    save_file(tensors(dtype), path / "model.safetensors")
    return path


def write_tokenizer(path: Path, largest: int) -> None:
    """A tokenizer.json whose largest id is `largest`."""
    vocab = {chr(97 + number): number for number in range(largest)}
    added = [{"id": largest, "content": "<|end|>"}]
    document = {"version": "1.0", "added_tokens": added, "model": {"type": "BPE", "vocab": vocab}}
    (path / "tokenizer.json").write_text(json.dumps(document))


def write_shards(path: Path) -> None:
    """Replace the weight file by two shards and their index."""
    (path / "model.safetensors").unlink()
    names = sorted(tensors())
    parts = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    everything = tensors()
    for file, part in parts.items():
        save_file({name: everything[name] for name in part}, path / file)
    weight_map = {name: file for file, part in parts.items() for name in part}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

"""Feed-forward weights in 8 or 4 bits: packing, unpacking, and a linear layer that may use them.

W8 is symmetric, one scale an output; W4 has a scale and an offset for each 128 inputs, two values a
byte. On a CPU the packed weights are widened for each product: this shows what quantization does to
answers, not how fast it could be. Nothing here runs unless the stack allows it and engine.yaml
asks for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from rwkv_server.errors import ModelInvalid
from rwkv_server.model import packed_manifest
from rwkv_server.model.config import RWKV7Config
from rwkv_server.model.packed_manifest import GROUP

Parts = dict[str, torch.Tensor]


def pack(weight: torch.Tensor, scheme: str) -> Parts:
    """Pack (outputs, inputs) of any float type."""
    w = weight.float()
    if scheme == "W8":
        scale = (w.abs().amax(1) / 127).clamp(min=1e-6).half()
        values = (w / scale.float()[:, None]).round().clamp(-127, 127).to(torch.int8)
        return {"values": values, "scale": scale}
    groups = w.view(len(w), -1, GROUP)
    low, high = groups.amin(2), groups.amax(2)
    scale, offset = ((high - low) / 15).clamp(min=1e-6).half(), low.half()
    steps = (groups - offset.float()[:, :, None]) / scale.float()[:, :, None]
    nibbles = steps.round().clamp(0, 15).to(torch.uint8).view(len(w), -1, 2)
    values = nibbles[:, :, 0] | (nibbles[:, :, 1] << 4)
    return {"values": values, "scale": scale, "offset": offset}


def unpack(parts: Parts, scheme: str) -> torch.Tensor:
    """(outputs, inputs) in fp32."""
    values, scale = parts["values"], parts["scale"].float()
    if scheme == "W8":
        return values.float() * scale[:, None]
    nibbles = torch.stack((values & 15, values >> 4), dim=2).view(len(values), -1, GROUP)
    offset = parts["offset"].float()
    return (nibbles.float() * scale[:, :, None] + offset[:, :, None]).flatten(1)


class PackedLinear(nn.Module):
    """A linear layer that takes the packed weights for some batch sizes, else the dense ones."""

    def __init__(self, dense: nn.Module, parts: Parts, scheme: str, rows: tuple[int, ...]) -> None:
        """Keep both; `dense` is called for all other batch sizes."""
        super().__init__()
        self.dense, self.scheme, self.rows = dense, scheme, frozenset(rows)
        for name, tensor in parts.items():
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, inputs) → (rows, outputs)."""
        if len(x) not in self.rows:
            return self.dense(x)
        parts = dict(self.named_buffers(recurse=False))
        return functional.linear(x.float(), unpack(parts, self.scheme)).to(x.dtype)


def write(folder: Path, scheme: str, model_digest: str, config: RWKV7Config) -> Path:
    """Pack a model's feed-forward weights beside it; returns the manifest's path."""
    dense: Parts = {}
    for file in sorted(folder.glob("model*.safetensors")):
        dense |= load_file(file)
    payload = {
        f"{name}.{part}": tensor.contiguous()
        for name in packed_manifest.ffn_shapes(config)
        for part, tensor in pack(dense[name], scheme).items()
    }
    file = folder / packed_manifest.payload_name(scheme)
    save_file(payload, file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    manifest = folder / packed_manifest.file_name(scheme)
    content = packed_manifest.build(scheme, model_digest, config, digest)
    manifest.write_text(json.dumps(content, indent=1) + "\n")
    return manifest


def load(
    folder: Path, scheme: str, model_digest: str, config: RWKV7Config
) -> tuple[packed_manifest.Manifest, dict[str, Parts]]:
    """A checked manifest and each weight's parts; ModelInvalid as `packed_manifest.read`."""
    manifest = packed_manifest.read(folder, scheme, model_digest, config)
    stored = load_file(folder / manifest.payload)
    weights: dict[str, Parts] = {}
    for name, tensor in stored.items():
        weight, _, part = name.rpartition(".")
        weights.setdefault(weight, {})[part] = tensor
    for name, (outputs, inputs) in manifest.shapes.items():
        wanted = _part_shapes(scheme, outputs, inputs)
        found = {part: tuple(t.shape) for part, t in weights.get(name, {}).items()}
        if found != wanted:
            raise ModelInvalid(f"{manifest.payload}: {name} has parts {found}, wanted {wanted}")
    return manifest, weights


def attach(
    layers: nn.ModuleList, folder: Path, asked: Mapping[str, Any], config: RWKV7Config
) -> None:
    """Put packed weights beside the dense ones of every block.

    Args:
        layers: the model's blocks, their weights loaded.
        folder: the model's.
        asked: the scheme, and the digest that the model check found.
        config: the model's.
    """
    manifest, weights = load(folder, asked["scheme"], asked["model"], config)
    for index, block in enumerate(layers):
        for half in ("key", "value"):
            parts = weights[f"model.layers.{index}.ffn.{half}.weight"]
            dense = getattr(block.ffn, half)
            setattr(block.ffn, half, PackedLinear(dense, parts, manifest.scheme, manifest.rows))


def _part_shapes(scheme: str, outputs: int, inputs: int) -> dict[str, tuple[int, ...]]:
    if scheme == "W8":
        return {"values": (outputs, inputs), "scale": (outputs,)}
    groups = (outputs, inputs // GROUP)
    return {"values": (outputs, inputs // 2), "scale": groups, "offset": groups}

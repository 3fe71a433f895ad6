"""Turns an RWKV-7 checkpoint in fla names into the .pth that the official implementation reads."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

NAMES = {
    "embeddings": "emb",
    "norm": "ln_out",
    "pre_norm": "ln0",
    "attn_norm": "ln1",
    "ffn_norm": "ln2",
    "r_proj": "receptance",
    "k_proj": "key",
    "v_proj": "value",
    "o_proj": "output",
    "g_norm": "ln_x",
    "attn": "att",
    "layers": "blocks",
}
LOW_RANK = {"lora.2.bias": "0", "lora.0.weight": "1", "lora.2.weight": "2"}


def official_name(name: str) -> str:
    """`model.layers.3.attn.w_lora.lora.0.weight` → `blocks.3.att.w1`."""
    if name == "lm_head.weight":
        return "head.weight"
    for ending, number in LOW_RANK.items():
        if name.endswith(ending):
            block, _, letter = name.removesuffix(f"_lora.{ending}").rpartition(".")
            return f"{official_name(block)}.{letter}{number}"
    parts = name.removeprefix("model.").split(".")
    return ".".join(NAMES.get(part, part) for part in parts)


def official_tensors(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights under the official names and in the official orientation."""
    converted = {}
    for name, tensor in tensors.items():
        low_rank = "_lora." in name and name.endswith("weight")
        converted[official_name(name)] = (tensor.T if low_rank else tensor).float().contiguous()
    if "head.weight" not in converted:
        converted["head.weight"] = converted["emb.weight"].clone()
    return converted


def write_pth(model: Path, target: Path) -> Path:
    """Convert a model directory; the official loader wants `target` without its suffix."""
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(model.glob("*.safetensors")):
        tensors |= load_file(file)
    torch.save(official_tensors(tensors), target)
    return target

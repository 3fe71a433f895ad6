"""Official checkpoint (.pth) names and shapes of RWKV-7, and what they become in the fla format.

Pure: names and shapes in, values out. The low-rank projections are stored transposed in one of the
two formats, and vectors carry dimensions of size 1 in one of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rwkv_server.model import weights

Shape = tuple[int, ...]

TIME_STATE = "att.time_state"

_WHOLE = {
    "emb.weight": "model.embeddings.weight",
    "head.weight": "lm_head.weight",
    "ln_out.weight": "model.norm.weight",
    "ln_out.bias": "model.norm.bias",
}
_MODULES = {
    "ln0": "pre_norm",
    "ln1": "attn_norm",
    "ln2": "ffn_norm",
    "att.receptance": "attn.r_proj",
    "att.key": "attn.k_proj",
    "att.value": "attn.v_proj",
    "att.output": "attn.o_proj",
    "att.ln_x": "attn.g_norm",
    "ffn.key": "ffn.key",
    "ffn.value": "ffn.value",
}
_LOW_RANK = {"0": "2.bias", "1": "0.weight", "2": "2.weight"}
_BLOCK = re.compile(r"blocks\.(\d+)\.(.+)")
_LORA = re.compile(r"att\.([wvag])([012])")
_MIX = re.compile(r"att\.(x_[rwkvag])")
_VECTOR = re.compile(r"(?:att\.(k_k|k_a)|ffn\.(x_k))")


@dataclass(frozen=True)
class Target:
    """What one official tensor becomes.

    Attributes:
        name: in the fla format.
        transposed: rows and columns change places.
        squeezed: dimensions of size 1 go away.
        mix: the shape becomes (1, 1, width).
    """

    name: str
    transposed: bool = False
    squeezed: bool = False
    mix: bool = False

    def shape(self, shape: Shape) -> Shape:
        """The shape after the change; one that can't be changed stays, to be refused later."""
        if self.transposed:
            return shape[::-1]
        kept = tuple(size for size in shape if size != 1)
        if self.mix:
            return (1, 1, *kept)
        return kept if self.squeezed else shape


def parse_name(name: str) -> Target | None:
    """What the tensor `name` becomes; None for one that the fla format doesn't have."""
    if name in _WHOLE:
        return Target(_WHOLE[name])
    block = _BLOCK.fullmatch(name)
    if block is None:
        return None
    layer, rest = block.groups()
    prefix = f"model.layers.{layer}."
    if lora := _LORA.fullmatch(rest):
        letter, number = lora.groups()
        if letter == "g" and number == "0":
            return None
        target = f"{prefix}attn.{letter}_lora.lora.{_LOW_RANK[number]}"
        return Target(target, transposed=number != "0", squeezed=number == "0")
    if mix := _MIX.fullmatch(rest):
        return Target(f"{prefix}attn.{mix[1]}", mix=True)
    if vector := _VECTOR.fullmatch(rest):
        owner = "attn" if vector[1] else "ffn"
        return Target(f"{prefix}{owner}.{vector[1] or vector[2]}", squeezed=True)
    if rest == "att.r_k":
        return Target(f"{prefix}attn.r_k")
    if rest == TIME_STATE:
        return Target(prefix + weights.INITIAL_STATE)
    module, _, kind = rest.rpartition(".")
    if module in _MODULES and kind in ("weight", "bias"):
        return Target(f"{prefix}{_MODULES[module]}.{kind}")
    return None


def is_initial_state(name: str) -> bool:
    """Whether the official tensor `name` is the state that a layer starts from."""
    block = _BLOCK.fullmatch(name)
    return block is not None and block[2] == TIME_STATE


def is_unused(name: str) -> bool:
    """Whether the official implementation itself never reads this tensor.

    The first layer has no value residual, but its checkpoints carry the weights.
    """
    return re.fullmatch(r"blocks\.0\.att\.v[012]", name) is not None

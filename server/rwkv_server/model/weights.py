"""Which tensors an RWKV-7 checkpoint in fla names must have, and how a file's list differs.

Pure: shapes in, values out. Reading files is the model check's business, loading them vLLM's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rwkv_server.model.config import RWKV7Config

Shape = tuple[int, ...]

# A layer's state before the first token, (heads, value, key), where a model was state-tuned.
INITIAL_STATE = "attn.initial_state"

MIXES = ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g")


@dataclass(frozen=True)
class Difference:
    """One tensor that isn't as the config says; `found` or `wanted` is None where there is none."""

    tensor: str
    found: Shape | None
    wanted: Shape | None

    def __str__(self) -> str:
        """One line for the user: the tensor, found, wanted."""
        if self.found is None:
            return f"{self.tensor} is missing, wanted shape {list(self.wanted or ())}"
        if self.wanted is None:
            return f"{self.tensor} is not part of an RWKV-7 of this config"
        return f"{self.tensor} has shape {list(self.found)}, wanted {list(self.wanted)}"


def _norm(name: str, size: int) -> dict[str, Shape]:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


def _low_rank(name: str, size: int, rank: int, *, bias: bool = True) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {
        f"{name}.lora.0.weight": (rank, size),
        f"{name}.lora.2.weight": (size, rank),
    }
    if bias:
        shapes[f"{name}.lora.2.bias"] = (size,)
    return shapes


def _attention(config: RWKV7Config, layer: int) -> dict[str, Shape]:
    """The recurrent half of a layer; the value residual starts with the second layer."""
    size = config.hidden_size
    shapes: dict[str, Shape] = {name: (1, 1, size) for name in MIXES}
    shapes |= {"k_k": (size,), "k_a": (size,), "r_k": (config.num_heads, config.head_dim)}
    for name in ("r_proj", "k_proj", "v_proj", "o_proj"):
        shapes[f"{name}.weight"] = (size, size)
    shapes |= _low_rank("w_lora", size, config.decay_low_rank_dim)
    shapes |= _low_rank("a_lora", size, config.a_low_rank_dim)
    shapes |= _low_rank("g_lora", size, config.gate_low_rank_dim, bias=False)
    if layer > 0:
        shapes |= _low_rank("v_lora", size, config.v_low_rank_dim)
    return shapes | _norm("g_norm", size)


def _layer(config: RWKV7Config, layer: int) -> dict[str, Shape]:
    size, wide = config.hidden_size, config.intermediate_size
    shapes = _norm("attn_norm", size) | _norm("ffn_norm", size)
    if layer == 0:
        shapes |= _norm("pre_norm", size)
    shapes |= {f"attn.{name}": shape for name, shape in _attention(config, layer).items()}
    shapes["ffn.x_k"] = (size,)
    shapes["ffn.key.weight"] = (wide, size)
    shapes["ffn.value.weight"] = (size, wide)
    return shapes


def expected_tensors(config: RWKV7Config) -> dict[str, Shape]:
    """Every tensor of a checkpoint, by its fla name: 33 a layer and 3 more."""
    shapes: dict[str, Shape] = {"model.embeddings.weight": (config.vocab_size, config.hidden_size)}
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}."
        shapes |= {prefix + name: shape for name, shape in _layer(config, layer).items()}
    shapes |= _norm("model.norm", config.hidden_size)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    return shapes


def initial_states(config: RWKV7Config) -> dict[str, Shape]:
    """The tensors of a state-tuned model that others don't have: one a layer, all or none."""
    shape = (config.num_heads, config.head_dim, config.head_dim)
    return {f"model.layers.{n}.{INITIAL_STATE}": shape for n in range(config.num_hidden_layers)}


def find_differences(config: RWKV7Config, found: Mapping[str, Shape]) -> list[Difference]:
    """How `found` differs from what the config asks for, missing and misshapen tensors first.

    Dimensions of size 1 don't count: writers of the format disagree about them.
    """
    wanted = expected_tensors(config)
    states = initial_states(config)
    if states.keys() & found.keys():
        wanted |= states
    differences = [
        Difference(name, found.get(name), shape)
        for name, shape in wanted.items()
        if name not in found or _squeeze(found[name]) != _squeeze(shape)
    ]
    surplus = [Difference(name, found[name], None) for name in sorted(found.keys() - wanted)]
    return differences + surplus


def _squeeze(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)

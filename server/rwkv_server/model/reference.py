"""RWKV-7 on two screens: plain torch, one sequence, straight from a checkpoint's tensors.

Independent of vLLM, of the kernels and of the layers; written to be read beside the paper and to
check them. Runs in the type of the tensors it's given, the recurrence always in fp32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn.functional import group_norm, layer_norm, linear, normalize

from rwkv_server.model.config import RWKV7Config

Tensors = Mapping[str, torch.Tensor]


@dataclass
class State:
    """What one layer remembers: the last normed inputs of both halves, and (heads, key, value)."""

    time_shift: torch.Tensor
    wkv: torch.Tensor
    channel_shift: torch.Tensor


class Part:
    """The tensors under one prefix, as attributes; `.weight` at a name's end may be left out."""

    def __init__(self, tensors: Tensors, prefix: str) -> None:
        """Look at `tensors` from `prefix` on."""
        self.tensors, self.prefix = tensors, prefix

    def __getattr__(self, name: str) -> torch.Tensor:
        """One tensor."""
        full = self.prefix + name
        return self.tensors[full if full in self.tensors else full + ".weight"]

    def low_rank(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Two thin matrices with the activation that belongs to `name` between them."""
        inner = {"w": torch.tanh, "g": torch.sigmoid}.get(name, lambda t: t)
        prefix = f"{self.prefix}{name}_lora.lora."
        hidden = inner(linear(x, self.tensors[prefix + "0.weight"]))
        return linear(
            hidden, self.tensors[prefix + "2.weight"], self.tensors.get(prefix + "2.bias")
        )

    def norm(self, name: str, x: torch.Tensor, eps: float) -> torch.Tensor:
        """A layer norm with weight and bias."""
        weight, bias = (self.tensors[f"{self.prefix}{name}.{kind}"] for kind in ("weight", "bias"))
        return layer_norm(x, x.shape[-1:], weight, bias, eps)


def new_state(config: RWKV7Config, dtype: torch.dtype) -> list[State]:
    """The state before the first token."""
    size, heads, dim = config.hidden_size, config.num_heads, config.head_dim
    return [
        State(
            torch.zeros(size, dtype=dtype),
            torch.zeros(heads, dim, dim),
            torch.zeros(size, dtype=dtype),
        )
        for _ in range(config.num_hidden_layers)
    ]


def time_mix(
    config: RWKV7Config, part: Part, x: torch.Tensor, v_first: torch.Tensor | None, state: State
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token's normed input (size,) → output (size,) and the first layer's value."""
    heads = (config.num_heads, config.head_dim)
    delta = state.time_shift - x
    state.time_shift = x
    mixed = {name: x + delta * getattr(part, f"x_{name}").flatten() for name in "rwkvag"}
    r = linear(mixed["r"], part.r_proj)
    k = linear(mixed["k"], part.k_proj)
    v = linear(mixed["v"], part.v_proj)
    w = torch.exp(-math.exp(-0.5) * torch.sigmoid(part.low_rank("w", mixed["w"]).float()))
    a = torch.sigmoid(part.low_rank("a", mixed["a"]))
    g = part.low_rank("g", mixed["g"])
    kk = normalize((k * part.k_k).float().view(heads), dim=-1)
    k = k * (1 + (a - 1) * part.k_a)
    if v_first is None:
        v_first = v
    else:
        v = v + (v_first - v) * torch.sigmoid(part.low_rank("v", mixed["v"]))

    r, w, k, v, a = (t.float().view(heads) for t in (r, w, k, v, a))
    removed = torch.einsum("hkv,hk->hv", state.wkv, kk)
    state.wkv = (
        state.wkv * w[:, :, None]
        - torch.einsum("hk,hv->hkv", kk * a, removed)
        + torch.einsum("hk,hv->hkv", k, v)
    )
    y = torch.einsum("hkv,hk->hv", state.wkv, r).view(1, -1)
    weight, bias = (
        part.tensors[f"{part.prefix}g_norm.{kind}"].float() for kind in ("weight", "bias")
    )
    y = group_norm(y, heads[0], weight, bias, config.group_norm_eps).view(heads)
    y = y + (r * k * part.r_k).sum(-1, keepdim=True) * v
    return linear(y.flatten().to(x.dtype) * g, part.o_proj), v_first


def channel_mix(part: Part, x: torch.Tensor, state: State) -> torch.Tensor:
    """One token's normed input (size,) → output (size,)."""
    mixed = x + (state.channel_shift - x) * part.x_k.flatten()
    state.channel_shift = x
    return linear(torch.relu(linear(mixed, part.key)) ** 2, part.value)


def forward(
    config: RWKV7Config, tensors: Tensors, tokens: list[int], state: list[State]
) -> torch.Tensor:
    """Read `tokens` into `state`; returns the logits after each one, (tokens, vocabulary)."""
    model, eps = Part(tensors, "model."), config.norm_eps
    head = tensors["model.embeddings.weight" if config.tie_word_embeddings else "lm_head.weight"]
    logits = []
    for token in tokens:
        x = model.embeddings[token]
        v_first: torch.Tensor | None = None
        for layer, layer_state in enumerate(state):
            block = Part(tensors, f"model.layers.{layer}.")
            if layer == 0:
                x = block.norm("pre_norm", x, eps)
            attn, ffn = Part(tensors, f"{block.prefix}attn."), Part(tensors, f"{block.prefix}ffn.")
            mixed, v_first = time_mix(
                config, attn, block.norm("attn_norm", x, eps), v_first, layer_state
            )
            x = x + mixed
            x = x + channel_mix(ffn, block.norm("ffn_norm", x, eps), layer_state)
        logits.append(linear(model.norm("norm", x, eps), head))
    return torch.stack(logits)

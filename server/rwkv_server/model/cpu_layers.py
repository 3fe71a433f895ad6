"""This rank's blocks on a CPU as one C++ call a step, and the head as another.

The modules of `layers` keep the weights and own the states; here their addresses are put into the
table that the library reads. Where `fit` finds a reason against it, the blocks' own torch code
runs. Nothing here computes.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from vllm.utils.torch_utils import direct_register_custom_op

from rwkv_server import vllm_compat
from rwkv_server.kernels import cpu_library, cpu_quantize, cpu_tables
from rwkv_server.model import arena, layers, shards
from rwkv_server.model.config import RWKV7Config

# Rows are read in whole vectors, and held on the stack: see cpp/simd.h, kMaxSize and kMaxHead.
_LANES, _MAX_SIZE, _MAX_HEAD = 16, 16384, 256
# What packing shrinks; low-rank matrices are small and steer decays, so they stay.
_PACKED = frozenset({"r", "k", "v", "o", "ffn_key", "ffn_value", "head"})


def fit(config: RWKV7Config, weight: torch.Tensor) -> cpu_library.Library | None:
    """The library that can run this model, if there is one.

    Args:
        config: the model's.
        weight: any of its matrices.
    """
    usable = (
        weight.device.type == "cpu"
        and weight.dtype in cpu_tables.TYPES
        and shards.ranks() == 1
        and config.head_dim % _LANES == 0
        and config.head_dim <= _MAX_HEAD
        and config.hidden_size <= _MAX_SIZE
        and config.intermediate_size % _LANES == 0
    )
    return cpu_library.best_library() if usable else None


def _linears(block: layers.RWKV7Block) -> Iterator[tuple[str, nn.Module]]:
    """A block's matrices under the table's names, in the order in which a step reads them."""
    attn, ffn = block.attn, block.ffn
    ranks = {name: getattr(attn, f"{name}_lora", None) for name in "wagv"}
    low_rank = {name: module.lora for name, module in ranks.items() if module is not None}
    yield "r", attn.r_proj
    yield "w_down", low_rank["w"][0]
    yield "k", attn.k_proj
    yield "v", attn.v_proj
    yield from ((f"{name}_down", lora[0]) for name, lora in low_rank.items() if name != "w")
    yield from ((f"{name}_up", lora[2]) for name, lora in low_rank.items())
    yield "o", attn.o_proj
    yield "ffn_key", ffn.key
    yield "ffn_value", ffn.value


class CpuLayers:
    """A rank's blocks, the final norm where the rank has it, and the head where it has that."""

    def __init__(
        self,
        library: cpu_library.Library,
        config: RWKV7Config,
        blocks: Sequence[layers.RWKV7Block],
        norm: nn.Module,
        head: nn.Module,
        scheme: str | None,
    ) -> None:
        """Take over loaded weights: vLLM is to leave them as they are.

        Args:
            library: what computes.
            config: the model's.
            blocks: this rank's.
            norm: the final one, or a stand-in without weights.
            head: as `norm`.
            scheme: "Int8" or "Int4" to pack the large matrices, None to keep them.
        """
        self.blocks, self.norm = list(blocks), norm
        self._library = library
        self._kept: list[torch.Tensor] = []
        self._results = arena.Results()
        self._bound: tuple[torch.Tensor, ...] | None = None
        self.type = cpu_tables.TYPES[blocks[0].attn.r_proj.weight.dtype]
        self._packed = scheme is not None
        self._matrices = self._take(head, scheme, tied=config.tie_word_embeddings)
        self._table = (cpu_tables.Layer * len(blocks))(*map(self._layer, blocks))
        self.model = self._model(config, blocks[0])
        self._engine = library.open_engine(self.model, torch.get_num_threads())
        self._head = self._matrices.get(head)
        if self._head is not None:
            self._head.outputs = config.vocab_size

    def _take(
        self, head: nn.Module, scheme: str | None, tied: bool
    ) -> dict[nn.Module, cpu_tables.Matrix]:
        """Pack what is to be packed, move all into one arena, and say where each matrix is."""
        named = [pair for block in self.blocks for pair in _linears(block)]
        if hasattr(head, "weight"):
            named.append(("head", head))
        for _, module in named:
            vllm_compat.keep_weights(module)
        packed: dict[nn.Module, cpu_quantize.Packed] = {}
        values: list[nn.Parameter] = []
        for name, module in named:
            if scheme is not None and name in _PACKED:
                # The head decides between tokens that are nearly alike: 8 bits at least.
                one = cpu_quantize.pack(module.weight, "Int8" if name == "head" else scheme)
                values.append(nn.Parameter(one.values, requires_grad=False))
                # New and empty ones: a slice would keep the memory of all.
                packed[module] = dataclasses.replace(one, values=one.values.new_empty(0))
                if name != "head" or not tied:  # a tied head is the embedding
                    module.weight.data = module.weight.data.new_empty(0, module.weight.shape[1])
        plain = [module for _, module in named if module not in packed]
        arena.move([module.weight for module in plain])
        arena.move(values)
        self._kept += (module.weight.data for module in plain)
        table = {module: cpu_tables.matrix(module.weight) for module in plain}
        for (module, one), moved in zip(packed.items(), values, strict=True):
            self._kept += (moved.data, one.scales)
            table[module] = cpu_tables.packed_matrix(one, moved.data)
        return table

    def _vector(self, *vectors: torch.Tensor | None) -> int | None:
        """The address of an fp32 copy, side by side; None where there is none."""
        given = [vector.detach().float().flatten() for vector in vectors if vector is not None]
        if not given:
            return None
        self._kept.append(torch.cat(given))
        return int(self._kept[-1].data_ptr())

    def _norm(self, norm: nn.Module | None) -> cpu_tables.Norm:
        if norm is None or not hasattr(norm, "weight"):
            return cpu_tables.Norm()
        return cpu_tables.Norm(self._vector(norm.weight), self._vector(norm.bias))

    def _layer(self, block: layers.RWKV7Block) -> cpu_tables.Layer:
        attn = block.attn
        table = cpu_tables.Layer(
            pre_norm=self._norm(block.pre_norm),
            attn_norm=self._norm(block.attn_norm),
            ffn_norm=self._norm(block.ffn_norm),
            group_norm=self._norm(attn.g_norm),
            mixes=self._vector(attn.mixes),
            ffn_mix=self._vector(block.ffn.x_k),
            **{name: self._vector(getattr(attn, name)) for name in ("k_k", "k_a", "r_k")},
        )
        for name, linear in _linears(block):
            setattr(table, name, self._matrices[linear])
            if name in ("w_up", "a_up", "v_up"):
                setattr(table, f"{name[0]}_bias", self._vector(linear.bias))
        return table

    def _model(self, config: RWKV7Config, first: layers.RWKV7Block) -> cpu_tables.Model:
        return cpu_tables.Model(
            size=config.hidden_size,
            heads=config.num_heads,
            head_dim=config.head_dim,
            wide=config.intermediate_size,
            layers=len(self._table),
            norm_eps=config.norm_eps,
            group_norm_eps=config.group_norm_eps,
            type=self.type,
            first=first.pre_norm is not None,
            layer=ctypes.cast(self._table, ctypes.POINTER(cpu_tables.Layer)),
            norm=self._norm(self.norm),
        )

    def _bind(self) -> None:
        """Point the table at the states, which vLLM allocates after loading."""
        if self._bound is self.blocks[0].kv_cache:
            return
        for table, block in zip(self._table, self.blocks, strict=True):
            for name, state in zip(cpu_tables.STATES, block.kv_cache, strict=True):
                setattr(table, name, cpu_tables.slots(state))
        self._bound = self.blocks[0].kv_cache

    def run(self, hidden: torch.Tensor, v_first: torch.Tensor) -> torch.Tensor:
        """(rows, size) → (rows, size), normed where this rank has the final norm."""
        metadata = vllm_compat.current_metadata(self.blocks[0].prefix)
        if metadata is None:  # a run that only measures memory
            if self._packed:  # there is nothing that torch could run
                return torch.zeros_like(hidden)
            for block in self.blocks:
                hidden = block.run(hidden, v_first)
            return self.norm(hidden)
        self._bind()
        steps = metadata.plan
        if steps.new_slots:
            for block in self.blocks:
                block.clear(block.kv_cache, steps)
        hidden = hidden.contiguous()
        out = torch.empty_like(hidden)
        self._library.calls.rwkv_forward(
            self._engine,
            hidden.data_ptr(),
            v_first.data_ptr(),
            out.data_ptr(),
            len(hidden),
            cpu_tables.spans(steps.spans),
            len(steps.spans),
        )
        return out

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(rows, size) → (rows, vocabulary), fp32."""
        assert self._head is not None
        out = self._results.empty(len(hidden), self._head.outputs)
        return self._library.linear(self._engine, self._head, hidden, out)


def _rwkv7_layers(hidden: torch.Tensor, v_first: torch.Tensor, layer_name: str) -> torch.Tensor:
    first: Any = vllm_compat.current_layer(layer_name)
    return first.stack.run(hidden, v_first)


def _rwkv7_layers_fake(
    hidden: torch.Tensor, v_first: torch.Tensor, layer_name: str
) -> torch.Tensor:
    return torch.empty_like(hidden)


direct_register_custom_op(
    op_name="rwkv7_layers",
    op_func=_rwkv7_layers,
    mutates_args=["v_first"],
    fake_impl=_rwkv7_layers_fake,
)

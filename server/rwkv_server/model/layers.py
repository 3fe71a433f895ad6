"""One RWKV-7 block as a vLLM layer that owns its recurrent state.

vLLM sees the block as one opaque operation with a declared output shape, so that graph compilers
can be used around it. Types: states and the recurrence are fp32, everything else is in the model's
type; norms of keys and heads are taken in fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.utils.torch_utils import direct_register_custom_op

from rwkv_server import vllm_compat
from rwkv_server.kernels import device_plan, dispatch, plan, torch_rows
from rwkv_server.model import shards, state_layout, step_trace, weights
from rwkv_server.model.config import RWKV7Config


class TimeMix(nn.Module):
    """The recurrent half of a block."""

    def __init__(self, config: RWKV7Config, layer: int, prefix: str) -> None:
        """Build the weights of one layer in fla's names."""
        super().__init__()
        size, heads = config.hidden_size, config.num_heads
        self.heads, self.head_dim, self.layer = heads // shards.ranks(), config.head_dim, layer
        for name in weights.MIXES:
            self.register_parameter(name, shards.whole_vector(1, 1, size))
        self.k_k, self.k_a = shards.split_vector(size), shards.split_vector(size)
        self.r_k = shards.split_vector(heads, self.head_dim)
        self.r_proj = shards.split_outputs(size, size, f"{prefix}.r_proj")
        self.k_proj = shards.split_outputs(size, size, f"{prefix}.k_proj")
        self.v_proj = shards.split_outputs(size, size, f"{prefix}.v_proj")
        self.o_proj = shards.split_inputs(size, size, f"{prefix}.o_proj")

        def low_rank(name: str, rank: int, inner: nn.Module, bias: bool = True) -> shards.LowRank:
            return shards.LowRank((size, rank, size), inner, f"{prefix}.{name}", bias=bias)

        self.w_lora = low_rank("w_lora", config.decay_low_rank_dim, nn.Tanh())
        self.a_lora = low_rank("a_lora", config.a_low_rank_dim, nn.Identity())
        self.g_lora = low_rank("g_lora", config.gate_low_rank_dim, nn.Sigmoid(), bias=False)
        if layer > 0:
            self.v_lora = low_rank("v_lora", config.v_low_rank_dim, nn.Identity())
        self.g_norm = shards.HeadNorm(size, config.group_norm_eps)
        self.initial_state: torch.Tensor | None = None  # for kernels that start slots themselves

    def finish_loading(self) -> None:
        """Put the six mixing vectors side by side: (6, 1, size)."""
        mixes = [getattr(self, name).data.view(1, -1) for name in weights.MIXES]
        self.register_buffer("mixes", torch.stack(mixes), persistent=False)

    def forward(
        self,
        x: torch.Tensor,
        v_first: torch.Tensor,
        caches: tuple[torch.Tensor, torch.Tensor],
        steps: dispatch.AnyPlan,
    ) -> torch.Tensor:
        """(rows, size) → (rows, size); layer 0 writes `v_first`, the others read it.

        `v_first` and the WKV state hold this rank's heads.
        """
        time_shift, wkv = caches
        kernels = dispatch.choose_kernels(x.device.type)
        xr, xw, xk, xv, xa, xg = kernels.mix(x, time_shift, self.mixes, steps).unbind(0)
        rows = torch_rows.Projected(
            r=self.r_proj(xr),
            k=self.k_proj(xk),
            v=self.v_proj(xv),
            w=self.w_lora(xw),
            a=self.a_lora(xa),
            gate=self.v_lora(xv) if self.layer > 0 else None,
        )
        scales = torch_rows.KeyScales(self.k_k, self.k_a)
        heads = kernels.prepare(rows, v_first, scales, self.head_dim)
        first = {"initial": self.initial_state} if kernels.on_device else {}
        y = kernels.wkv7(**heads._asdict(), state=wkv, plan=steps, **first)
        norm = self.g_norm
        readout = torch_rows.Readout(self.r_k, norm.weight, norm.bias, norm.eps)
        return self.o_proj(kernels.finish(y, heads, readout, self.g_lora(xg)))


class ChannelMix(nn.Module):
    """The feed-forward half of a block."""

    def __init__(self, config: RWKV7Config, prefix: str) -> None:
        """Build the weights of one layer in fla's names."""
        super().__init__()
        size, wide = config.hidden_size, config.intermediate_size
        self.x_k = shards.whole_vector(size)
        self.key = shards.split_outputs(size, wide, f"{prefix}.key")
        self.value = shards.split_inputs(wide, size, f"{prefix}.value")

    def forward(
        self, x: torch.Tensor, cache: torch.Tensor, steps: dispatch.AnyPlan
    ) -> torch.Tensor:
        """(rows, size) → (rows, size)."""
        kernels = dispatch.choose_kernels(x.device.type)
        (mixed,) = kernels.mix(x, cache, self.x_k.view(1, 1, -1), steps)
        return self.value(torch.relu_(self.key(mixed)).square_())


class RWKV7Block(nn.Module, vllm_compat.StateOwner):
    """A whole block, and to vLLM the owner of the block's state pages."""

    def __init__(self, config: RWKV7Config, vllm_config: VllmConfig, prefix: str) -> None:
        """Build the block `prefix` = "….<layer>" and register it as a state owner."""
        super().__init__()
        layer = int(prefix.rsplit(".", 1)[1])
        size, eps = config.hidden_size, config.norm_eps
        self.prefix = prefix
        self._trace = step_trace.open_trace(vllm_config.additional_config)
        dtype = dtype_name(vllm_config.model_config.dtype)
        self.state = state_layout.layer_state(config, dtype, shards.ranks())
        self.pre_norm = nn.LayerNorm(size, eps=eps) if layer == 0 else None
        self.attn_norm = nn.LayerNorm(size, eps=eps)
        self.attn = TimeMix(config, layer, f"{prefix}.attn")
        self.ffn_norm = nn.LayerNorm(size, eps=eps)
        self.ffn = ChannelMix(config, f"{prefix}.ffn")
        self.initial_state: torch.Tensor | None = None
        self.stack: Any = None  # of the rank's first block: all blocks in one call, see cpu_layers
        vllm_compat.register_layer(vllm_config, prefix, self)

    def start_from(self, state: torch.Tensor) -> None:
        """Let every request start from `state`, (heads, value, key) of the whole model."""
        share = shards.own_heads(state)
        own = share.float().transpose(1, 2).contiguous().to(self.attn_norm.weight.device)
        self.initial_state = self.attn.initial_state = own

    def get_state_shape(self) -> Sequence[tuple[int, ...]]:
        """Shapes in page order."""
        return tuple(tensor.shape for tensor in self.state)

    def get_state_dtype(self) -> tuple[torch.dtype, ...]:
        """Types in page order."""
        return tuple(getattr(torch, tensor.dtype) for tensor in self.state)

    @property
    def mamba_type(self) -> Any:
        """The name under which our backend is registered."""
        return vllm_compat.BACKEND

    def forward(self, hidden: torch.Tensor, v_first: torch.Tensor) -> torch.Tensor:
        """(rows, size) → (rows, size), opaque to compilers."""
        return torch.ops.vllm.rwkv7_block(hidden, v_first, self.prefix)

    def run(self, hidden: torch.Tensor, v_first: torch.Tensor) -> torch.Tensor:
        """Take the step's rows through the block and its state; padded rows come out as 0."""
        metadata = vllm_compat.current_metadata(self.prefix)
        if metadata is None:
            steps, caches = self._scratch(hidden)
        else:
            steps, caches = metadata.plan, self.kv_cache
        self.clear(caches, steps)
        count = steps.num_rows
        x = hidden[:count]
        if self.pre_norm is not None:
            x = self.pre_norm(x)
        x = x + self.attn(self.attn_norm(x), v_first[:count], caches[:2], steps)
        x = x + self.ffn(self.ffn_norm(x), caches[2], steps)
        if count == len(hidden):
            return x
        out = torch.zeros_like(hidden)
        out[:count] = x
        return out

    def clear(self, caches: Sequence[torch.Tensor], steps: dispatch.AnyPlan) -> None:
        """Empty the slots of new requests, where kernels don't or a trace is to tell of it."""
        if isinstance(steps, plan.Plan):
            fresh = steps.fresh
        elif self._trace is not None:
            fresh = steps.fresh_slots()
        else:
            return
        traced = self._trace is not None and len(fresh) > 0
        before = hold_anything(caches, fresh) if traced else []
        for cache in caches:
            # Assigned, not multiplied: whatever a slot held, NaN too, is gone.
            cache.index_fill_(0, fresh, 0)
        if self.initial_state is not None:
            caches[1][fresh] = self.initial_state
        if self._trace is not None and traced:
            after = hold_anything(caches, fresh)
            self._trace.cleared(self.prefix, fresh.tolist(), before, after)

    def _scratch(self, hidden: torch.Tensor) -> tuple[dispatch.AnyPlan, tuple[torch.Tensor, ...]]:
        """One request over all rows on a state of its own, for runs before there is a cache."""
        kinds = zip(self.get_state_shape(), self.get_state_dtype(), strict=True)
        caches = tuple(hidden.new_zeros(1, *shape, dtype=dtype) for shape, dtype in kinds)
        rows, device = len(hidden), hidden.device
        if not dispatch.choose_kernels(device.type).on_device:
            return plan.build_plan([rows], [0], [True], device), caches
        starts, slots, fresh = (torch.tensor(x, device=device) for x in ([0, rows], [0], [1]))
        decodes = rows == 1
        return device_plan.build_device_plan(starts, slots, fresh, rows, decodes=decodes), caches


def hold_anything(caches: Sequence[torch.Tensor], slots: torch.Tensor) -> list[bool]:
    """Whether each of `slots` has an element that isn't zero, NaN included."""
    held = [(cache.index_select(0, slots) != 0).flatten(1).any(1) for cache in caches]
    return torch.stack(held).any(0).tolist()


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` → "float32"."""
    return str(dtype).removeprefix("torch.")


def _rwkv7_block(hidden: torch.Tensor, v_first: torch.Tensor, layer_name: str) -> torch.Tensor:
    layer: Any = vllm_compat.current_layer(layer_name)
    return layer.run(hidden, v_first)


def _rwkv7_block_fake(hidden: torch.Tensor, v_first: torch.Tensor, layer_name: str) -> torch.Tensor:
    return torch.empty_like(hidden)


direct_register_custom_op(
    op_name="rwkv7_block",
    op_func=_rwkv7_block,
    mutates_args=["v_first"],
    fake_impl=_rwkv7_block_fake,
)

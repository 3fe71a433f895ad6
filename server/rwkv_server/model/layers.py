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
from torch.nn import functional
from vllm.config import VllmConfig
from vllm.utils.torch_utils import direct_register_custom_op

from rwkv_server import vllm_compat
from rwkv_server.kernels import dispatch, plan
from rwkv_server.model import shards, state_layout, step_trace, weights
from rwkv_server.model.config import RWKV7Config

DECAY_SCALE = -0.6065306597126334  # -exp(-1/2): a row keeps at least exp of this of the state


def shift(x: torch.Tensor, cache: torch.Tensor, steps: plan.Plan) -> torch.Tensor:
    """Each row's predecessor in its request; each segment's last row goes into `cache`.

    Args:
        x: (rows, size).
        cache: (slots, 1, size), last row of each slot's request, updated in place.
        steps: which rows go to which slot.
    """
    last = cache.squeeze(1)
    previous = last.index_select(0, steps.slots)
    if steps.chunks is not None:
        previous = x.roll(1, 0).index_copy_(0, steps.starts, previous)
    last.index_copy_(0, steps.slots, x.index_select(0, steps.ends))
    return previous


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
        self.g_norm = shards.HeadNorm(heads, size, config.group_norm_eps)
        self.kernel = dispatch.choose_kernel()

    def finish_loading(self) -> None:
        """Put the six mixing vectors side by side: (6, 1, size)."""
        mixes = [getattr(self, name).data.view(1, -1) for name in weights.MIXES]
        self.register_buffer("mixes", torch.stack(mixes), persistent=False)

    def forward(
        self,
        x: torch.Tensor,
        v_first: torch.Tensor,
        caches: tuple[torch.Tensor, torch.Tensor],
        steps: plan.Plan,
    ) -> torch.Tensor:
        """(rows, size) → (rows, size); layer 0 writes `v_first`, the others read it.

        `v_first` and the WKV state hold this rank's heads.
        """
        time_shift, wkv = caches
        delta = shift(x, time_shift, steps).sub_(x)
        xr, xw, xk, xv, xa, xg = torch.addcmul(x, delta, self.mixes).unbind(0)
        r, k, v = self.r_proj(xr), self.k_proj(xk), self.v_proj(xv)
        log_w = torch.sigmoid(self.w_lora(xw).float()).mul_(DECAY_SCALE)
        a = torch.sigmoid(self.a_lora(xa))
        kk = functional.normalize(self._by_head(k * self.k_k), dim=-1)
        k = k * (1 + (a - 1) * self.k_a)
        if self.layer == 0:
            v_first.copy_(v)
        else:
            v = torch.lerp(v, v_first, torch.sigmoid(self.v_lora(xv)))
        r, log_w, k, v, a = (self._by_head(t) for t in (r, log_w, k, v, a))
        y = self.kernel(r=r, log_w=log_w, k=k, v=v, kk=kk, a=a, state=wkv, plan=steps)
        y = self.g_norm(y.flatten(1))
        y += ((r * k * self.r_k).sum(-1, keepdim=True) * v).flatten(1)
        return self.o_proj(y.to(x.dtype) * self.g_lora(xg))

    def _by_head(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, size) → (rows, heads, head_dim) in fp32."""
        return x.float().view(-1, self.heads, self.head_dim)


class ChannelMix(nn.Module):
    """The feed-forward half of a block."""

    def __init__(self, config: RWKV7Config, prefix: str) -> None:
        """Build the weights of one layer in fla's names."""
        super().__init__()
        size, wide = config.hidden_size, config.intermediate_size
        self.x_k = shards.whole_vector(size)
        self.key = shards.split_outputs(size, wide, f"{prefix}.key")
        self.value = shards.split_inputs(wide, size, f"{prefix}.value")

    def forward(self, x: torch.Tensor, cache: torch.Tensor, steps: plan.Plan) -> torch.Tensor:
        """(rows, size) → (rows, size)."""
        delta = shift(x, cache, steps).sub_(x)
        return self.value(torch.relu_(self.key(torch.addcmul(x, delta, self.x_k))).square_())


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
        vllm_compat.register_layer(vllm_config, prefix, self)

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
        self._clear(caches, steps.fresh)
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

    def _clear(self, caches: Sequence[torch.Tensor], fresh: torch.Tensor) -> None:
        """Empty the slots of new requests."""
        traced = self._trace is not None and len(fresh) > 0
        before = hold_anything(caches, fresh) if traced else []
        for cache in caches:
            # Assigned, not multiplied: whatever a slot held, NaN too, is gone.
            cache.index_fill_(0, fresh, 0)
        if self._trace is not None and traced:
            after = hold_anything(caches, fresh)
            self._trace.cleared(self.prefix, fresh.tolist(), before, after)

    def _scratch(self, hidden: torch.Tensor) -> tuple[plan.Plan, tuple[torch.Tensor, ...]]:
        """One request over all rows on a state of its own, for runs before there is a cache."""
        kinds = zip(self.get_state_shape(), self.get_state_dtype(), strict=True)
        caches = tuple(hidden.new_zeros(1, *shape, dtype=dtype) for shape, dtype in kinds)
        return plan.build_plan([len(hidden)], [0], [True], hidden.device), caches


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

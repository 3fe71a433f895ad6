"""Weights, and which part of each lives on a tensor-parallel rank.

Heads and feed-forward channels are split evenly; what works on the whole hidden state (token shift,
its mixing vectors, layer norms, the thin side of low-rank matrices) is on every rank. Sums over
ranks are vLLM's. No arithmetic of RWKV here.
"""

from __future__ import annotations

import torch
from torch import nn
from vllm.distributed import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
    tensor_model_parallel_all_gather,
)
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
)


def ranks() -> int:
    """Tensor-parallel ranks."""
    return get_tensor_model_parallel_world_size()


def own_share(x: torch.Tensor) -> torch.Tensor:
    """(rows, whole) → (rows, this rank's share)."""
    return x.chunk(ranks(), dim=-1)[get_tensor_model_parallel_rank()]


def own_heads(x: torch.Tensor) -> torch.Tensor:
    """(heads, ...) → (this rank's heads, ...)."""
    return x.chunk(ranks(), dim=0)[get_tensor_model_parallel_rank()]


def all_shares(x: torch.Tensor) -> torch.Tensor:
    """(rows, share) → (rows, whole), the same on every rank."""
    return tensor_model_parallel_all_gather(x)


def whole_vector(*shape: int) -> nn.Parameter:
    """A weight of every rank, which writers store with or without dimensions of size 1."""
    parameter = nn.Parameter(torch.empty(*shape), requires_grad=False)
    parameter.weight_loader = _load_whole
    return parameter


def split_vector(length: int, *shape: int) -> nn.Parameter:
    """A weight (length, *shape) of which each rank has consecutive rows."""
    parameter = nn.Parameter(torch.empty(length // ranks(), *shape), requires_grad=False)
    parameter.weight_loader = _load_share
    return parameter


def _load_whole(parameter: nn.Parameter, loaded: torch.Tensor) -> None:
    parameter.data.copy_(loaded.reshape(parameter.shape))


def _load_share(parameter: nn.Parameter, loaded: torch.Tensor) -> None:
    rows = loaded.reshape(len(parameter) * ranks(), *parameter.shape[1:])
    start = get_tensor_model_parallel_rank() * len(parameter)
    parameter.data.copy_(rows.narrow(0, start, len(parameter)))


def whole_linear(inputs: int, outputs: int, prefix: str) -> ReplicatedLinear:
    """The same product on every rank."""
    return ReplicatedLinear(inputs, outputs, bias=False, prefix=prefix, return_bias=False)


def split_outputs(
    inputs: int, outputs: int, prefix: str, *, bias: bool = False
) -> ColumnParallelLinear:
    """The whole input on every rank, a share of the outputs."""
    return ColumnParallelLinear(inputs, outputs, bias=bias, prefix=prefix, return_bias=False)


def split_inputs(inputs: int, outputs: int, prefix: str) -> RowParallelLinear:
    """A share of the inputs on every rank; the outputs are summed over the ranks."""
    return RowParallelLinear(inputs, outputs, bias=False, prefix=prefix, return_bias=False)


class LowRank(nn.Module):
    """Two thin matrices with an activation between: x → rank → this rank's share of outputs."""

    def __init__(
        self,
        sizes: tuple[int, int, int],
        inner: nn.Module,
        prefix: str,
        *,
        bias: bool = True,
    ) -> None:
        """Keep fla's names: lora.0 goes down, lora.2 goes up.

        Args:
            sizes: inputs, rank of the matrices, outputs.
            inner: the activation.
            prefix: name of this module.
            bias: whether lora.2 has one.
        """
        super().__init__()
        inputs, rank, outputs = sizes
        down = whole_linear(inputs, rank, f"{prefix}.lora.0")
        up = split_outputs(rank, outputs, f"{prefix}.lora.2", bias=bias)
        self.lora = nn.Sequential(down, inner, up)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, inputs) → (rows, share of outputs)."""
        return self.lora(x)


class HeadNorm(nn.Module):
    """The weights of a norm over each head, this rank's heads."""

    def __init__(self, size: int, eps: float) -> None:
        """Build for `size` elements of the whole model's heads together."""
        super().__init__()
        self.eps = eps
        self.weight, self.bias = split_vector(size), split_vector(size)

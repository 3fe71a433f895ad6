"""What a block does to each row around the recurrence, in torch operations.

Nothing here knows of weights' names, of linear layers or of vLLM. `triton_rows` has the same
functions with one launch each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from rwkv_server.kernels.plan import Plan

DECAY_SCALE = -0.6065306597126334  # -exp(-1/2): a row keeps at least exp of this of the state


class Projected(NamedTuple):
    """What a layer's projections make of each row, all (rows, size).

    Attributes:
        w: decay before its sigmoid.
        a: learning rate before its sigmoid.
        gate: how far the value goes to that of the first layer, before its sigmoid; None there.
    """

    r: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    w: torch.Tensor
    a: torch.Tensor
    gate: torch.Tensor | None


class Heads(NamedTuple):
    """What the recurrence takes of each row, all (rows, heads, head size); see `naive.wkv7`."""

    r: torch.Tensor
    log_w: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    kk: torch.Tensor
    a: torch.Tensor


class KeyScales(NamedTuple):
    """How keys are scaled: (size,) for the removal key and for the learning rate's share."""

    k_k: torch.Tensor
    k_a: torch.Tensor


class Readout(NamedTuple):
    """The weights between the recurrence and the output projection.

    Attributes:
        r_k: (heads, head size), the share of a row's own value.
        weight: (size,) of the norm over each head.
        bias: (size,) of it.
        eps: of it.
    """

    r_k: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    eps: float


def mix(x: torch.Tensor, cache: torch.Tensor, mixes: torch.Tensor, plan: Plan) -> torch.Tensor:
    """Mix each row with its predecessor in its request; `cache` gets each segment's last row.

    Args:
        x: (rows, size).
        cache: (slots, 1, size), last row of each slot's request, updated in place.
        mixes: (n, 1, size), how far towards the predecessor.
        plan: which rows go to which slot.

    Returns:
        (n, rows, size).
    """
    last = cache.squeeze(1)
    previous = last.index_select(0, plan.slots)
    if plan.chunks is not None:
        previous = x.roll(1, 0).index_copy_(0, plan.starts, previous)
    last.index_copy_(0, plan.slots, x.index_select(0, plan.ends))
    return torch.addcmul(x, previous.sub_(x), mixes)


def prepare(rows: Projected, v_first: torch.Tensor, scales: KeyScales, head_size: int) -> Heads:
    """From projections to the recurrence's fp32 inputs.

    `v_first` (rows, size) is written where `rows.gate` is None and read elsewhere.
    """

    def by_head(x: torch.Tensor) -> torch.Tensor:
        return x.float().view(len(x), -1, head_size)

    log_w = torch.sigmoid(rows.w.float()).mul_(DECAY_SCALE)
    a = torch.sigmoid(rows.a)
    kk = functional.normalize(by_head(rows.k * scales.k_k), dim=-1)
    k = rows.k * (1 + (a - 1) * scales.k_a)
    if rows.gate is None:
        v = v_first.copy_(rows.v)
    else:
        v = torch.lerp(rows.v, v_first, torch.sigmoid(rows.gate))
    r, log_w, k, v, a = (by_head(x) for x in (rows.r, log_w, k, v, a))
    return Heads(r, log_w, k, v, kk, a)


def finish(y: torch.Tensor, heads: Heads, readout: Readout, g: torch.Tensor) -> torch.Tensor:
    """From what the recurrence reads out to the output projection's input.

    Args:
        y: (rows, heads, head size) of the recurrence.
        heads: its inputs.
        readout: the weights.
        g: (rows, size) gate, whose type the result has.
    """
    count = heads.r.shape[1]
    weight, bias = readout.weight.float(), readout.bias.float()
    y = functional.group_norm(y.flatten(1), count, weight, bias, readout.eps)
    own = (heads.r * heads.k * readout.r_k).sum(-1, keepdim=True) * heads.v
    return y.add_(own.flatten(1)).to(g.dtype) * g

"""`torch_rows` in Triton: one launch for each of its functions, fp32 inside.

On a GPU a small batch's step costs what its launches cost, so what lies between two matrix products
is one kernel. A row's predecessor comes from its slot where its segment starts, and the slot is
written here, so nothing is gathered, and a new request's slot needs no clearing.

Imports Triton, so only `dispatch` and tests may import this.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from rwkv_server.kernels import torch_rows
from rwkv_server.kernels.device_plan import DevicePlan
from rwkv_server.kernels.torch_rows import Heads, KeyScales, Projected, Readout

# Columns of one program of `_mix`.
WIDTH = 512


@triton.jit
def _mix(
    x_ptr,
    cache_ptr,
    mixes_ptr,
    out_ptr,
    slots_ptr,
    fresh_ptr,
    starts_ptr,
    owners_ptr,
    rows,
    segments,
    slot_stride,
    size,
    COUNT: tl.constexpr,
    DECODES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row with its predecessor, COUNT times."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    if DECODES:
        segment = row
        has_segment = row < segments
        is_first = has_segment
    else:
        segment = tl.load(owners_ptr + row).to(tl.int64)
        has_segment = segment >= 0
        is_first = has_segment & (tl.load(starts_ptr + segment, mask=has_segment, other=-1) == row)
    slot = tl.load(slots_ptr + segment, mask=has_segment, other=-1).to(tl.int64)
    is_old = tl.load(fresh_ptr + segment, mask=has_segment, other=1) == 0
    x = tl.load(x_ptr + row * size + at, mask=inside, other=0.0)
    from_slot = inside & is_first & is_old & (slot >= 0)
    previous = tl.load(cache_ptr + slot * slot_stride + at, mask=from_slot, other=0.0)
    if not DECODES:
        from_row = inside & has_segment & (is_first == 0)
        before = tl.load(x_ptr + (row - 1) * size + at, mask=from_row, other=0.0)
        previous = tl.where(is_first, previous, before)
    delta = previous.to(tl.float32) - x.to(tl.float32)
    for n in tl.static_range(COUNT):
        share = tl.load(mixes_ptr + n * size + at, mask=inside, other=0.0).to(tl.float32)
        mixed = x.to(tl.float32) + delta * share
        tl.store(out_ptr + (n * rows + row) * size + at, mixed, mask=inside)
    if DECODES:
        tl.store(cache_ptr + slot * slot_stride + at, x, mask=inside & (slot >= 0))


@triton.jit
def _keep(x_ptr, cache_ptr, slots_ptr, starts_ptr, slot_stride, size, BLOCK: tl.constexpr):
    """A segment's last row into its slot."""
    segment = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots_ptr + segment).to(tl.int64)
    last = tl.load(starts_ptr + segment + 1).to(tl.int64) - 1
    inside = (at < size) & (slot >= 0)
    x = tl.load(x_ptr + last * size + at, mask=inside, other=0.0)
    tl.store(cache_ptr + slot * slot_stride + at, x, mask=inside)


@triton.jit
def _prepare(
    k_ptr,
    v_ptr,
    w_ptr,
    a_ptr,
    gate_ptr,
    v_first_ptr,
    k_k_ptr,
    k_a_ptr,
    log_w_out_ptr,
    k_out_ptr,
    v_out_ptr,
    kk_out_ptr,
    a_out_ptr,
    heads,
    scale,
    FIRST: tl.constexpr,
    HEAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One head of one row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * HEAD + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < HEAD
    at = row * heads * HEAD + column
    w = tl.load(w_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(log_w_out_ptr + at, scale * tl.sigmoid(w), mask=inside)
    a = tl.sigmoid(tl.load(a_ptr + at, mask=inside, other=0.0).to(tl.float32))
    tl.store(a_out_ptr + at, a, mask=inside)
    k = tl.load(k_ptr + at, mask=inside, other=0.0).to(tl.float32)
    kk = k * tl.load(k_k_ptr + column, mask=inside, other=0.0).to(tl.float32)
    length = tl.sqrt(tl.sum(kk * kk, axis=0))
    tl.store(kk_out_ptr + at, kk / tl.maximum(length, 1e-12), mask=inside)
    k_a = tl.load(k_a_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(k_out_ptr + at, k * (1.0 + (a - 1.0) * k_a), mask=inside)
    v = tl.load(v_ptr + at, mask=inside, other=0.0)
    if FIRST:
        tl.store(v_first_ptr + at, v, mask=inside)
        tl.store(v_out_ptr + at, v.to(tl.float32), mask=inside)
    else:
        gate = tl.sigmoid(tl.load(gate_ptr + at, mask=inside, other=0.0).to(tl.float32))
        first = tl.load(v_first_ptr + at, mask=inside, other=0.0).to(tl.float32)
        v = v.to(tl.float32)
        tl.store(v_out_ptr + at, v + (first - v) * gate, mask=inside)


@triton.jit
def _finish(
    y_ptr,
    r_ptr,
    k_ptr,
    v_ptr,
    r_k_ptr,
    weight_ptr,
    bias_ptr,
    g_ptr,
    out_ptr,
    heads,
    eps,
    HEAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One head of one row: norm, the row's own value, gate."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * HEAD + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < HEAD
    at = row * heads * HEAD + column
    y = tl.load(y_ptr + at, mask=inside, other=0.0)
    y = tl.where(inside, y - tl.sum(y, axis=0) / HEAD, 0.0)
    y *= tl.rsqrt(tl.sum(y * y, axis=0) / HEAD + eps)
    y *= tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    y += tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(r_ptr + at, mask=inside, other=0.0).to(tl.float32)
    k = tl.load(k_ptr + at, mask=inside, other=0.0)
    r_k = tl.load(r_k_ptr + column, mask=inside, other=0.0).to(tl.float32)
    y += tl.sum(r * k * r_k, axis=0) * tl.load(v_ptr + at, mask=inside, other=0.0)
    g = tl.load(g_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, y * g, mask=inside)


def mix(
    x: torch.Tensor, cache: torch.Tensor, mixes: torch.Tensor, plan: DevicePlan
) -> torch.Tensor:
    """Same contract as `torch_rows.mix`; a fresh slot counts as zeros, whatever it holds."""
    rows, size = x.shape
    count, blocks, stride = len(mixes), triton.cdiv(size, WIDTH), cache.stride(0)
    out = x.new_empty(count, rows, size)
    _mix[(rows, blocks)](
        x,
        cache,
        mixes,
        out,
        plan.slots,
        plan.fresh,
        plan.starts,
        plan.owners,
        rows,
        len(plan.slots),
        stride,
        size,
        COUNT=count,
        DECODES=plan.decodes,
        BLOCK=WIDTH,
        num_warps=4,
    )
    if not plan.decodes:
        _keep[(len(plan.slots), blocks)](
            x, cache, plan.slots, plan.starts, stride, size, BLOCK=WIDTH, num_warps=4
        )
    return out


def prepare(rows: Projected, v_first: torch.Tensor, scales: KeyScales, head_size: int) -> Heads:
    """Same contract as `torch_rows.prepare`; r keeps its type."""
    count, size = rows.k.shape
    heads = size // head_size
    shape = (5, count, heads, head_size)
    log_w, k, v, kk, a = torch.empty(shape, device=rows.k.device).unbind(0)
    _prepare[(count, heads)](
        rows.k,
        rows.v,
        rows.w,
        rows.a,
        rows.v if rows.gate is None else rows.gate,
        v_first,
        *scales,
        log_w,
        k,
        v,
        kk,
        a,
        heads,
        torch_rows.DECAY_SCALE,
        FIRST=rows.gate is None,
        HEAD=head_size,
        BLOCK=triton.next_power_of_2(head_size),
        num_warps=1,
    )
    return Heads(rows.r.view(count, heads, head_size), log_w, k, v, kk, a)


def finish(y: torch.Tensor, heads: Heads, readout: Readout, g: torch.Tensor) -> torch.Tensor:
    """Same contract as `torch_rows.finish`."""
    count, number, size = y.shape
    out = torch.empty_like(g)
    _finish[(count, number)](
        y,
        heads.r,
        heads.k,
        heads.v,
        readout.r_k,
        readout.weight,
        readout.bias,
        g,
        out,
        number,
        readout.eps,
        HEAD=size,
        BLOCK=triton.next_power_of_2(size),
        num_warps=1,
    )
    return out

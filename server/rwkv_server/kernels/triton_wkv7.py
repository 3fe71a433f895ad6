"""WKV-7 in Triton, for NVIDIA and AMD: states are read and written where they lie.

`_step` takes one-row segments, `triton_chunks` longer ones. What a program has to know of its
segment it reads on the device.

Imports Triton, so only `dispatch` and tests may import this.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from rwkv_server.kernels import triton_chunks
from rwkv_server.kernels.device_plan import DevicePlan
from rwkv_server.kernels.triton_program import Program

STEP = Program(columns=64, warps=2)


@triton.jit
def _step(
    r_ptr,
    log_w_ptr,
    k_ptr,
    v_ptr,
    kk_ptr,
    a_ptr,
    out_ptr,
    state_ptr,
    slots_ptr,
    fresh_ptr,
    starts_ptr,
    initial_ptr,
    segments,
    slot_stride,
    heads,
    DECODES: tl.constexpr,
    INITIAL: tl.constexpr,
    KEY: tl.constexpr,
    VALUE: tl.constexpr,
    BLOCK_KEY: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
):
    """One row into one state: y = S' r with S' = S diag(w) - (S kk)(kk a) + v k."""
    segment = tl.program_id(0)
    head = tl.program_id(1)
    key = tl.arange(0, BLOCK_KEY)
    value = tl.program_id(2) * BLOCK_VALUE + tl.arange(0, BLOCK_VALUE)
    in_key = key < KEY
    in_value = value < VALUE
    slot = tl.load(slots_ptr + segment, mask=segment < segments, other=-1).to(tl.int64)
    if DECODES:
        row = segment.to(tl.int64)
        is_mine = slot >= 0
    else:
        row = tl.load(starts_ptr + segment).to(tl.int64)
        is_mine = (slot >= 0) & (tl.load(starts_ptr + segment + 1) == row + 1)
    at_value = (row * heads + head) * VALUE + value
    if is_mine:
        at_key = (row * heads + head) * KEY + key
        r = tl.load(r_ptr + at_key, mask=in_key, other=0.0).to(tl.float32)
        decay = tl.exp(tl.load(log_w_ptr + at_key, mask=in_key, other=0.0).to(tl.float32))
        k = tl.load(k_ptr + at_key, mask=in_key, other=0.0).to(tl.float32)
        kk = tl.load(kk_ptr + at_key, mask=in_key, other=0.0).to(tl.float32)
        a = tl.load(a_ptr + at_key, mask=in_key, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at_value, mask=in_value, other=0.0).to(tl.float32)

        at = head * KEY * VALUE + key[:, None] * VALUE + value[None, :]
        place = state_ptr + slot * slot_stride + at
        inside = in_key[:, None] & in_value[None, :]
        is_old = tl.load(fresh_ptr + segment) == 0
        s = tl.load(place, mask=inside & is_old, other=0.0)
        if INITIAL:
            s += tl.load(initial_ptr + at, mask=inside & (is_old == 0), other=0.0)
        removed = tl.sum(s * kk[:, None], axis=0)
        s = s * decay[:, None] - (kk * a)[:, None] * removed[None, :] + k[:, None] * v[None, :]
        tl.store(place, s, mask=inside)
        tl.store(out_ptr + at_value, tl.sum(s * r[:, None], axis=0), mask=in_value)
    elif DECODES:
        tl.store(out_ptr + at_value, tl.zeros([BLOCK_VALUE], tl.float32), mask=in_value)


def wkv7(
    r: torch.Tensor,
    log_w: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    kk: torch.Tensor,
    a: torch.Tensor,
    state: torch.Tensor,
    plan: DevicePlan,
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    """Same contract as `naive.wkv7`, but whatever a fresh slot holds, it counts as `initial`.

    That is (heads, key, value) in fp32, None for zeros. Inputs may be of any floating type and must
    be contiguous; `state` may have gaps between slots.
    """
    rows, heads, _ = k.shape
    inputs = (r, log_w, k, v, kk, a)
    if plan.decodes:
        out = torch.empty_like(v, dtype=torch.float32)
        _one_row_each(inputs, out, (state, initial), plan, (rows, heads))
        return out
    out = torch.zeros_like(v, dtype=torch.float32)
    _one_row_each(inputs, out, (state, initial), plan, (len(plan.slots), heads))
    triton_chunks.many_rows_each(inputs, out, (state, initial), plan)
    return out


def _one_row_each(
    inputs: tuple[torch.Tensor, ...],
    out: torch.Tensor,
    states: tuple[torch.Tensor, torch.Tensor | None],
    plan: DevicePlan,
    programs: tuple[int, int],
) -> None:
    state, initial = states
    sizes = STEP.sizes(inputs[2], inputs[3])
    _step[(*programs, triton.cdiv(sizes["VALUE"], sizes["BLOCK_VALUE"]))](
        *inputs,
        out,
        state,
        plan.slots,
        plan.fresh,
        plan.starts,
        state if initial is None else initial,
        len(plan.slots),
        state.stride(0),
        programs[1],
        DECODES=plan.decodes,
        INITIAL=initial is not None,
        **STEP.options,
        **sizes,
    )

"""WKV-7 over long segments in Triton, 16 rows at a time.

`_solve` works out, for all chunks at once, what each does to any state, with the algebra that
`torch_wkv7` explains; `_carry` takes each segment's state through its chunks. Columns of a state
don't meet each other, so programs share a head's.

Imports Triton, so only `triton_wkv7` and tests may import this.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from rwkv_server.kernels.device_plan import DevicePlan
from rwkv_server.kernels.triton_program import Program

SOLVE = Program(columns=64, warps=4)
CARRY = Program(columns=16, warps=2, stages=2)


@triton.jit
def _join(inverse, lower, HALF: tl.constexpr, PRECISION: tl.constexpr):
    """From the inverses of the diagonal blocks of size HALF to those of twice that size."""
    i = tl.arange(0, 16)[:, None]
    j = tl.arange(0, 16)[None, :]
    same = i // (2 * HALF) == j // (2 * HALF)
    here = same & (i % (2 * HALF) >= HALF) & (j % (2 * HALF) < HALF)
    between = tl.dot(inverse, tl.where(here, lower, 0.0), input_precision=PRECISION)
    return inverse - tl.dot(between, inverse, input_precision=PRECISION)


@triton.jit
def _inverse(lower, PRECISION: tl.constexpr):
    """(I + lower)^-1 of a strictly lower triangular (16, 16), by blocks of 1, 2, 4 and 8.

    Knowing the inverses A', B' of two neighbours on the diagonal, that of [[A, 0], [C, B]] has
    -B' C A' in C's place. Unlike a sum of powers of `lower`, nothing large cancels.
    """
    i = tl.arange(0, 16)[:, None]
    j = tl.arange(0, 16)[None, :]
    inverse = tl.where(i == j, 1.0, 0.0) - tl.where((i // 2 == j // 2) & (i > j), lower, 0.0)
    inverse = _join(inverse, lower, 2, PRECISION)
    inverse = _join(inverse, lower, 4, PRECISION)
    return _join(inverse, lower, 8, PRECISION)


@triton.jit
def _solve(
    r_ptr,
    log_w_ptr,
    k_ptr,
    v_ptr,
    kk_ptr,
    a_ptr,
    removes_ptr,
    reads_ptr,
    adds_ptr,
    takes_ptr,
    removed_ptr,
    out_ptr,
    firsts_ptr,
    ends_ptr,
    heads,
    KEY: tl.constexpr,
    VALUE: tl.constexpr,
    BLOCK_KEY: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """What one chunk does to any state S before it.

    It removes u = removes S + removed, reads y = reads S + out, and leaves
    diag(decay) S + adds' v - takes' u.
    """
    chunk = tl.program_id(0)
    head = tl.program_id(1)
    first = tl.load(firsts_ptr + chunk)
    end = tl.load(ends_ptr + chunk)
    if first < end:
        step = tl.arange(0, 16)
        key = tl.arange(0, BLOCK_KEY)
        earlier = step[:, None] > step[None, :]
        row = (first + step).to(tl.int64)
        at_key = ((row * heads + head) * KEY)[:, None] + key[None, :]
        # A row past the end changes nothing: no decay, nothing removed, nothing added.
        is_row = row < end
        ok = is_row[:, None] & (key < KEY)[None, :]
        log_w = tl.load(log_w_ptr + at_key, mask=ok, other=0.0).to(tl.float32)
        decay = tl.cumsum(log_w, axis=0)
        to_end = tl.exp(tl.sum(log_w, axis=0)[None, :] - decay)
        grow = tl.exp(-decay)
        kk = tl.load(kk_ptr + at_key, mask=ok, other=0.0).to(tl.float32)
        b = kk * tl.load(a_ptr + at_key, mask=ok, other=0.0).to(tl.float32)
        k = tl.load(k_ptr + at_key, mask=ok, other=0.0).to(tl.float32)
        tl.store(adds_ptr + at_key, k * to_end, mask=ok)
        tl.store(takes_ptr + at_key, b * to_end, mask=ok)
        b_t = tl.trans(b * grow)
        k_t = tl.trans(k * grow)

        removes = kk * tl.exp(decay - log_w)
        system = tl.where(earlier, tl.dot(removes, b_t, input_precision=PRECISION), 0.0)
        inverse = _inverse(system, PRECISION)
        known = tl.where(earlier, tl.dot(removes, k_t, input_precision=PRECISION), 0.0)
        known = tl.dot(inverse, known, input_precision=PRECISION)
        removes = tl.dot(inverse, removes, input_precision=PRECISION)
        tl.store(removes_ptr + at_key, removes, mask=ok)

        r = tl.load(r_ptr + at_key, mask=ok, other=0.0).to(tl.float32) * tl.exp(decay)
        read_b = tl.where(earlier, tl.dot(r, b_t, input_precision=PRECISION), 0.0)
        read_k = tl.where(earlier, tl.dot(r, k_t, input_precision=PRECISION), 0.0)
        same = step[:, None] == step[None, :]
        read_b += tl.where(same, tl.sum(r * b * grow, axis=1)[:, None], 0.0)
        read_k += tl.where(same, tl.sum(r * k * grow, axis=1)[:, None], 0.0)
        reads = r - tl.dot(read_b, removes, input_precision=PRECISION)
        tl.store(reads_ptr + at_key, reads, mask=ok)
        read_k -= tl.dot(read_b, known, input_precision=PRECISION)

        for part in tl.static_range(0, VALUE, BLOCK_VALUE):
            value = part + tl.arange(0, BLOCK_VALUE)
            at_value = ((row * heads + head) * VALUE)[:, None] + value[None, :]
            ok_value = is_row[:, None] & (value < VALUE)[None, :]
            v = tl.load(v_ptr + at_value, mask=ok_value, other=0.0).to(tl.float32)
            removed = tl.dot(known, v, input_precision=PRECISION)
            tl.store(removed_ptr + at_value, removed, mask=ok_value)
            y = tl.dot(read_k, v, input_precision=PRECISION)
            tl.store(out_ptr + at_value, y, mask=ok_value)


@triton.jit
def _carry(
    log_w_ptr,
    v_ptr,
    removes_ptr,
    reads_ptr,
    adds_ptr,
    takes_ptr,
    removed_ptr,
    out_ptr,
    state_ptr,
    slots_ptr,
    fresh_ptr,
    starts_ptr,
    initial_ptr,
    slot_stride,
    heads,
    INITIAL: tl.constexpr,
    KEY: tl.constexpr,
    VALUE: tl.constexpr,
    BLOCK_KEY: tl.constexpr,
    BLOCK_VALUE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Take a segment's state through its chunks, and add to `out` what they read from it."""
    segment = tl.program_id(0)
    head = tl.program_id(1)
    slot = tl.load(slots_ptr + segment).to(tl.int64)
    start = tl.load(starts_ptr + segment)
    end = tl.load(starts_ptr + segment + 1)
    if (slot >= 0) & (end > start + 1):
        step = tl.arange(0, 16)
        key = tl.arange(0, BLOCK_KEY)
        value = tl.program_id(2) * BLOCK_VALUE + tl.arange(0, BLOCK_VALUE)
        in_key = key < KEY
        in_value = value < VALUE
        at = head * KEY * VALUE + key[:, None] * VALUE + value[None, :]
        place = state_ptr + slot * slot_stride + at
        inside = in_key[:, None] & in_value[None, :]
        is_old = tl.load(fresh_ptr + segment) == 0
        s = tl.load(place, mask=inside & is_old, other=0.0)
        if INITIAL:
            s += tl.load(initial_ptr + at, mask=inside & (is_old == 0), other=0.0)
        for first in range(start, end, 16):
            row = (first + step).to(tl.int64)
            at_key = ((row * heads + head) * KEY)[:, None] + key[None, :]
            ok = (row < end)[:, None] & in_key[None, :]
            at_value = ((row * heads + head) * VALUE)[:, None] + value[None, :]
            ok_value = (row < end)[:, None] & in_value[None, :]

            reads = tl.load(reads_ptr + at_key, mask=ok, other=0.0)
            y = tl.load(out_ptr + at_value, mask=ok_value, other=0.0)
            y += tl.dot(reads, s, input_precision=PRECISION)
            tl.store(out_ptr + at_value, y, mask=ok_value)

            removes = tl.load(removes_ptr + at_key, mask=ok, other=0.0)
            u = tl.load(removed_ptr + at_value, mask=ok_value, other=0.0)
            u += tl.dot(removes, s, input_precision=PRECISION)
            log_w = tl.load(log_w_ptr + at_key, mask=ok, other=0.0).to(tl.float32)
            s *= tl.exp(tl.sum(log_w, axis=0))[:, None]
            adds = tl.load(adds_ptr + at_key, mask=ok, other=0.0)
            v = tl.load(v_ptr + at_value, mask=ok_value, other=0.0).to(tl.float32)
            s += tl.dot(tl.trans(adds), v, input_precision=PRECISION)
            takes = tl.load(takes_ptr + at_key, mask=ok, other=0.0)
            s -= tl.dot(tl.trans(takes), u, input_precision=PRECISION)
        tl.store(place, s, mask=inside)


def product_precision(device: torch.device) -> str:
    """How Triton multiplies fp32 there: by three TF32 products where tensor cores have them."""
    if torch.version.hip or device.type != "cuda":
        return "ieee"
    return "tf32x3" if torch.cuda.get_device_capability(device) >= (8, 0) else "ieee"


def many_rows_each(
    inputs: tuple[torch.Tensor, ...],
    out: torch.Tensor,
    states: tuple[torch.Tensor, torch.Tensor | None],
    plan: DevicePlan,
) -> None:
    """Read every segment of two rows or more into its state; their rows of `out` are written.

    `inputs` are r, log_w, k, v, kk and a of `naive.wkv7`, `states` the slots and what a fresh one
    counts as.
    """
    state, initial = states
    _, log_w, k, v, _, _ = inputs
    heads, precision = k.shape[1], product_precision(v.device)
    removes, reads, adds, takes = torch.empty((4, *k.shape), device=k.device).unbind(0)
    removed = torch.empty_like(out)
    _solve[(len(plan.chunk_firsts), heads)](
        *inputs,
        removes,
        reads,
        adds,
        takes,
        removed,
        out,
        plan.chunk_firsts,
        plan.chunk_ends,
        heads,
        PRECISION=precision,
        **SOLVE.options,
        **SOLVE.sizes(k, v),
    )
    sizes = CARRY.sizes(k, v)
    parts = triton.cdiv(sizes["VALUE"], sizes["BLOCK_VALUE"])
    _carry[(len(plan.slots), heads, parts)](
        log_w,
        v,
        removes,
        reads,
        adds,
        takes,
        removed,
        out,
        state,
        plan.slots,
        plan.fresh,
        plan.starts,
        state if initial is None else initial,
        state.stride(0),
        heads,
        INITIAL=initial is not None,
        PRECISION=precision,
        **CARRY.options,
        **sizes,
    )

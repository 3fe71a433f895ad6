"""WKV-7 as its definition reads: one row after the other, one segment after the other.

The reference that every other kernel is tested against. Slow on purpose.
"""

from __future__ import annotations

import torch

from rwkv_server.kernels.plan import Plan


def wkv7(
    r: torch.Tensor,
    log_w: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    kk: torch.Tensor,
    a: torch.Tensor,
    state: torch.Tensor,
    plan: Plan,
) -> torch.Tensor:
    """Read every row into its segment's state and return what each row reads out.

    Args:
        r: (rows, heads, key) receptance, fp32 like all inputs.
        log_w: (rows, heads, key) log of the decay, at most 0.
        k: (rows, heads, key) key.
        v: (rows, heads, value) value.
        kk: (rows, heads, key) removal key, of length 1.
        a: (rows, heads, key) learning rate, in 0..1.
        state: (slots, heads, key, value), updated in place at the plan's slots.
        plan: which rows go to which slot.

    Returns:
        (rows, heads, value); rows outside of every segment are 0.
    """
    out = torch.zeros_like(v)
    for start, length, slot in plan.spans:
        s = state[slot].clone()
        for row in range(start, start + length):
            removed = torch.einsum("hkv,hk->hv", s, kk[row])
            s = s * log_w[row].exp()[:, :, None]
            s = s - torch.einsum("hk,hv->hkv", kk[row] * a[row], removed)
            s = s + torch.einsum("hk,hv->hkv", k[row], v[row])
            out[row] = torch.einsum("hkv,hk->hv", s, r[row])
        state[slot] = s
    return out

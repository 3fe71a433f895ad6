"""The C++ WKV-7 kernel alone, with the contract of `naive.wkv7`.

An engine with C++ kernels runs whole layers in one call; this is the same recurrence where only
that is wanted, and what the tests of kernels call.
"""

from __future__ import annotations

import torch

from rwkv_server.kernels import cpu_library, cpu_tables
from rwkv_server.kernels.plan import Plan

MAX_VALUES = 1024  # kMaxValues of cpp/wkv7.h


def wkv7(
    library: cpu_library.Library,
    r: torch.Tensor,
    log_w: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    kk: torch.Tensor,
    a: torch.Tensor,
    state: torch.Tensor,
    plan: Plan,
) -> torch.Tensor:
    """Same contract as `naive.wkv7`, after the library to use."""
    out = torch.zeros(v.shape)
    heads, values = v.shape[1:]
    assert values <= MAX_VALUES
    inputs = [x.contiguous() for x in (r, log_w, k, v, kk, a)]
    library.calls.rwkv_wkv7(
        cpu_library.plain_engine(library),
        *(x.data_ptr() for x in inputs),
        cpu_tables.slots(state),
        heads,
        k.shape[2],
        values,
        cpu_tables.spans(plan.spans),
        len(plan.spans),
        out.data_ptr(),
    )
    return out

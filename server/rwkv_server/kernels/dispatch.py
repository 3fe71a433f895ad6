"""The one place that decides which WKV-7 kernel runs."""

from __future__ import annotations

from typing import Protocol

import torch

from rwkv_server.kernels import torch_wkv7
from rwkv_server.kernels.plan import Plan


class Kernel(Protocol):
    """What `naive.wkv7` says, as a type."""

    def __call__(
        self,
        r: torch.Tensor,
        log_w: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kk: torch.Tensor,
        a: torch.Tensor,
        state: torch.Tensor,
        plan: Plan,
    ) -> torch.Tensor:
        """Read rows into states, return what they read out."""


def choose_kernel() -> Kernel:
    """The fastest kernel there is; the torch form runs on every device."""
    return torch_wkv7.wkv7

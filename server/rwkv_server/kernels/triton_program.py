"""How much of a head one Triton program takes, for the recurrence's kernels.

Imports Triton, so only its kernels may import this.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton


class Program(NamedTuple):
    """Columns of a state and warps; chosen so that no target that we name spills registers."""

    columns: int
    warps: int

    def sizes(self, k: torch.Tensor, v: torch.Tensor) -> dict[str, int]:
        """The sizes that a kernel is compiled for, from the last dimension of a key and a value."""
        key, value = k.shape[-1], v.shape[-1]
        return {
            "KEY": key,
            "VALUE": value,
            "BLOCK_KEY": max(16, triton.next_power_of_2(key)),
            "BLOCK_VALUE": min(self.columns, max(16, triton.next_power_of_2(value))),
        }

"""How much of a head one Triton program takes, for the recurrence's kernels.

Imports Triton, so only its kernels may import this.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton


class Program(NamedTuple):
    """Columns of a state, warps, and loads in flight.

    Chosen on an H200 among those with which no target that we name spills registers.
    """

    columns: int
    warps: int
    stages: int = 3  # Triton's own choice

    @property
    def options(self) -> dict[str, int]:
        """What Triton is told when it compiles."""
        return {"num_warps": self.warps, "num_stages": self.stages}

    def sizes(self, k: torch.Tensor, v: torch.Tensor) -> dict[str, int]:
        """The sizes that a kernel is compiled for, from the last dimension of a key and a value."""
        key, value = k.shape[-1], v.shape[-1]
        return {
            "KEY": key,
            "VALUE": value,
            "BLOCK_KEY": max(16, triton.next_power_of_2(key)),
            "BLOCK_VALUE": min(self.columns, max(16, triton.next_power_of_2(value))),
        }

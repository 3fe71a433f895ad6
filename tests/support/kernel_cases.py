"""Inputs for tests of kernels: rows in the model's ranges, states with guards, device plans."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rwkv_server.kernels.device_plan import DevicePlan, build_device_plan
from rwkv_server.kernels.plan import Plan

Step = tuple[Sequence[int], Sequence[int], Sequence[bool | int]]

# Lengths, slots (−1: a padded request), which are fresh; more slots than used.
STEPS: dict[str, Step] = {
    "one row": ([1], [2], [False]),
    "decodes with padded requests behind": ([1, 1, 1, 0, 0], [3, 1, 2, -1, -1], [0, 1, 0, 0, 0]),
    "a prompt of two rows": ([2], [0], [True]),
    "a whole chunk": ([16], [1], [False]),
    "one row more than a chunk": ([17], [1], [True]),
    "a mix with empty segments between": (
        [1, 0, 20, 1, 0, 33, 2],
        [3, -1, 2, 5, -1, 1, 4],
        [0, 0, 1, 1, 0, 0, 1],
    ),
    "the longest first": ([50, 1, 3], [0, 1, 2], [0, 0, 0]),
}


def rows(count: int, heads: int, key: int, value: int, seed: int) -> tuple[torch.Tensor, ...]:
    """Inputs in the ranges that the model produces, with decays at both of their ends."""
    generator = torch.Generator().manual_seed(seed)

    def normal(size: int) -> torch.Tensor:
        return torch.randn(count, heads, size, generator=generator)

    log_w = -0.6065306597 * torch.sigmoid(8 * normal(key))
    kk = torch.nn.functional.normalize(normal(key), dim=-1)
    return normal(key), log_w, normal(key), normal(value), kk, torch.sigmoid(4 * normal(key))


def guarded_states(plan: Plan, slots: int, *shape: int, seed: int) -> torch.Tensor:
    """States for the plan's slots, NaN in all others."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.full((slots, *shape), float("nan"))
    for slot in plan.slots.tolist():
        states[slot] = torch.randn(shape, generator=generator)
    return states


def on_device(step: Step, pad: int, device: str = "cpu") -> DevicePlan:
    """The device plan of a step whose batch has `pad` rows more than its segments."""
    lengths, slots, fresh = (torch.tensor(x, device=device) for x in step)
    starts = torch.cat((lengths.new_zeros(1), lengths.cumsum(0)))
    num_rows = sum(step[0]) + pad
    return build_device_plan(starts, slots, fresh, num_rows, decodes=max(step[0]) == 1)

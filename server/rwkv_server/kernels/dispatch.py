"""The one place that decides which kernels run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from rwkv_server.kernels import torch_rows, torch_wkv7
from rwkv_server.kernels.device_plan import DevicePlan
from rwkv_server.kernels.plan import Plan

AnyPlan = Plan | DevicePlan


@dataclass(frozen=True)
class Kernels:
    """What a block computes between its matrix products; see `naive` and `torch_rows`.

    Attributes:
        on_device: whether they take a `DevicePlan`, and start the slots of new requests themselves,
            for which `wkv7` takes the `initial` state.
    """

    mix: Callable[..., torch.Tensor]
    prepare: Callable[..., torch_rows.Heads]
    wkv7: Callable[..., torch.Tensor]
    finish: Callable[..., torch.Tensor]
    on_device: bool


@functools.cache
def choose_kernels(device_type: str) -> Kernels:
    """The kernels for a device; torch calls AMD's GPUs "cuda" too.

    The torch forms run everywhere. On Ascend's NPUs they are all there is.
    """
    if device_type == "cuda":
        # Only there: Triton isn't installed beside a CPU engine.
        from rwkv_server.kernels import triton_rows, triton_wkv7

        return Kernels(
            triton_rows.mix, triton_rows.prepare, triton_wkv7.wkv7, triton_rows.finish, True
        )
    return Kernels(torch_rows.mix, torch_rows.prepare, torch_wkv7.wkv7, torch_rows.finish, False)

"""Matrices in 8 or 4 bits, as cpp/int8.h and cpp/int4.h read them.

Int8 has one scale for each output. Int4 has one for each group of 64 inputs, chosen among a few for
the least squared error. Pure torch; nothing is kept here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

GROUP = 64
# How far the largest weight of a group may be cut off, for finer steps of all others.
_CUTS = (1.0, 0.92, 0.84, 0.76)


@dataclass(frozen=True)
class Packed:
    """A packed matrix.

    Attributes:
        scheme: "Int8" or "Int4".
        shape: (outputs, inputs) of the matrix.
        values: uint8, (outputs, inputs) or (outputs, inputs / 2).
        scales: fp32, (outputs,) or (outputs, inputs / GROUP).
    """

    scheme: str
    shape: tuple[int, int]
    values: torch.Tensor
    scales: torch.Tensor


def pack(weight: torch.Tensor, scheme: str) -> Packed:
    """Pack (outputs, inputs) of any float type; rows that Int4 can't group become Int8."""
    w = weight.detach().float()
    if scheme == "Int8" or w.shape[1] % GROUP:
        return _pack_int8(w)
    return _pack_int4(w)


def unpack(packed: Packed) -> torch.Tensor:
    """What the packed matrix stands for, fp32."""
    if packed.scheme == "Int8":
        return (packed.values.float() - 128) * packed.scales[:, None]
    pairs = packed.values.view(len(packed.values), -1, GROUP // 2)
    steps = torch.cat((pairs & 15, pairs >> 4), dim=2).float() - 8
    return (steps * packed.scales[:, :, None]).view(packed.shape)


def _pack_int8(w: torch.Tensor) -> Packed:
    scales = (w.abs().amax(1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    values = (w / scales[:, None]).round_().clamp_(-127, 127).add_(128)
    return Packed("Int8", tuple(w.shape), values.to(torch.uint8), scales)


def _pack_int4(w: torch.Tensor) -> Packed:
    groups = w.view(len(w), -1, GROUP)
    largest = groups.gather(2, groups.abs().argmax(2, keepdim=True))
    best_error = torch.full_like(largest, float("inf"))
    scales = largest / -8  # stays where the largest is no number, so that no product is one
    steps = torch.zeros_like(groups)
    for cut in _CUTS:
        # The largest one gets the lowest step, which is further from 0 than the highest.
        scale = largest * (cut / -8)
        tried = (groups / scale).nan_to_num_(0.0).round_().clamp_(-8, 7)
        error = (tried * scale - groups).square_().sum(2, keepdim=True)
        better = error < best_error
        best_error = torch.where(better, error, best_error)
        scales = torch.where(better, scale, scales)
        steps = torch.where(better, tried, steps)
    nibbles = (steps + 8).to(torch.uint8)
    values = nibbles[:, :, : GROUP // 2] | (nibbles[:, :, GROUP // 2 :] << 4)
    shape = tuple(w.shape)
    return Packed("Int4", shape, values.flatten(1), scales.squeeze(2).contiguous())

"""The tables of plain pointers that the C++ kernels read, field by field as in cpp/abi.h.

A table holds addresses only: whoever fills it keeps the tensors alive.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from rwkv_server.kernels.cpu_quantize import Packed

# Of stored matrices, rows and shift states; packed formats of matrices have further numbers.
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
PACKED = {"Int8": 3, "Int4": 4}

_P, _I64, _I32, _F32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float


class Matrix(ctypes.Structure):
    """(outputs, inputs), row after row."""

    _fields_ = (
        ("data", _P),
        ("scales", _P),
        ("outputs", _I64),
        ("inputs", _I64),
        ("format", _I32),
    )


class Slots(ctypes.Structure):
    """One state tensor of all slots: where slot 0 begins and the bytes from slot to slot."""

    _fields_ = (("data", _P), ("stride", _I64))


class Norm(ctypes.Structure):
    """Weight and bias, fp32."""

    _fields_ = (("weight", _P), ("bias", _P))


_NORMS = ("pre_norm", "attn_norm", "ffn_norm", "group_norm")
_VECTORS = ("mixes", "k_k", "k_a", "r_k", "ffn_mix", "w_bias", "a_bias", "v_bias")
_LOW_RANK = ("w_down", "w_up", "a_down", "a_up", "v_down", "v_up", "g_down", "g_up")
_MATRICES = ("r", "k", "v", "o", *_LOW_RANK, "ffn_key", "ffn_value")
STATES = ("time_shift", "wkv", "channel_shift")


class Layer(ctypes.Structure):
    """One layer's weights and the states of all its slots."""

    _fields_ = (
        *((name, Norm) for name in _NORMS),
        *((name, _P) for name in _VECTORS),
        *((name, Matrix) for name in _MATRICES),
        *((name, Slots) for name in STATES),
    )


class Model(ctypes.Structure):
    """The numbers of a model and its layers."""

    _fields_ = (
        *((name, _I64) for name in ("size", "heads", "head_dim", "wide", "layers")),
        ("norm_eps", _F32),
        ("group_norm_eps", _F32),
        ("type", _I32),
        ("first", _I32),
        ("layer", ctypes.POINTER(Layer)),
        ("norm", Norm),
    )


class Span(ctypes.Structure):
    """A segment: first row, rows, slot."""

    _fields_ = (("row", _I64), ("rows", _I64), ("slot", _I64))


def matrix(weight: torch.Tensor) -> Matrix:
    """A table entry for (outputs, inputs) of a plain type."""
    assert weight.is_contiguous()
    outputs, inputs = weight.shape
    return Matrix(weight.data_ptr(), None, outputs, inputs, TYPES[weight.dtype])


def packed_matrix(packed: Packed, values: torch.Tensor) -> Matrix:
    """A table entry for packed weights whose values were moved to `values`."""
    data, scales = values.data_ptr(), packed.scales.data_ptr()
    return Matrix(data, scales, *packed.shape, PACKED[packed.scheme])


def slots(state: torch.Tensor) -> Slots:
    """A table entry for (slots, …), each slot whole."""
    assert state[:1].is_contiguous()
    return Slots(state.data_ptr(), state.stride(0) * state.element_size())


def spans(segments: Sequence[tuple[int, int, int]]) -> ctypes.Array[Span]:
    """A plan's segments."""
    return (Span * len(segments))(*(Span(*segment) for segment in segments))

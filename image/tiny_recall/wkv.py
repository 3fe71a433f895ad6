"""The WKV-7 operation of training: builds ``wkv.cpp`` at first use and gives it a gradient."""

import ctypes
import functools
import hashlib
import os
import pathlib
import subprocess
import tempfile
from typing import Any

import torch

HEAD = 64
CHUNK = 16
_SOURCE = pathlib.Path(__file__).with_name("wkv.cpp")
_FLAGS = ("-O3", "-march=native", "-ffast-math", "-std=c++17", "-shared", "-fPIC", "-pthread")


@functools.cache
def load_library() -> ctypes.CDLL:
    """Compile the kernel for this machine, unless it was compiled before, and load it."""
    key = hashlib.sha256(_SOURCE.read_bytes() + " ".join(_FLAGS).encode()).hexdigest()[:16]
    folder = (
        pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"tiny-wkv-{os.getuid()}"
    )
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"wkv-{key}.so"
    if not library.exists():
        partial = library.with_suffix(f".{os.getpid()}")
        compiler = os.environ.get("CXX", "g++")
        subprocess.run([compiler, *_FLAGS, str(_SOURCE), "-o", str(partial)], check=True)
        partial.rename(library)
    return ctypes.CDLL(str(library))


def _pointers(*tensors: torch.Tensor) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]


class _Wkv(torch.autograd.Function):
    """Inputs r, w, k, v, z, b and output y are fp32 of shape (B, T, H, 64)."""

    @staticmethod
    def forward(ctx: Any, *inputs: torch.Tensor) -> torch.Tensor:
        batch, time, heads, _ = inputs[0].shape
        inputs = tuple(tensor.float().contiguous() for tensor in inputs)
        y = torch.empty_like(inputs[0])
        saved = torch.empty(batch, heads, -(-time // CHUNK), HEAD, HEAD)
        load_library().wkv7_forward(
            batch, time, heads, *_pointers(*inputs, y, saved), torch.get_num_threads()
        )
        ctx.save_for_backward(*inputs, saved)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, ...]:
        *inputs, saved = ctx.saved_tensors
        batch, time, heads, _ = inputs[0].shape
        dy = grads[0].float().contiguous()
        out = tuple(torch.empty_like(tensor) for tensor in inputs)
        load_library().wkv7_backward(
            batch, time, heads, *_pointers(*inputs, dy, saved, *out), torch.get_num_threads()
        )
        return out


def wkv(
    r: torch.Tensor,
    w: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    z: torch.Tensor,
    b: torch.Tensor,
) -> torch.Tensor:
    """Run S = diag(w) S + b (S^T z)^T + k v^T and return y = S^T r, from a zero state.

    All of shape (B, T, H, 64); for RWKV-7, z is -kk and b is kk * a.
    """
    return _Wkv.apply(r, w, k, v, z, b)


def wkv_reference(
    r: torch.Tensor,
    w: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    z: torch.Tensor,
    b: torch.Tensor,
) -> torch.Tensor:
    """The same in plain torch, one step at a time, differentiable in any dtype."""
    batch, time, heads, size = r.shape
    state = r.new_zeros(batch, heads, size, size)  # key x value
    outputs = []
    for t in range(time):
        sa = torch.einsum("bhji,bhj->bhi", state, z[:, t])
        state = (
            state * w[:, t, :, :, None]
            + b[:, t, :, :, None] * sa[:, :, None]
            + k[:, t, :, :, None] * v[:, t, :, None]
        )
        outputs.append(torch.einsum("bhji,bhj->bhi", state, r[:, t]))
    return torch.stack(outputs, dim=1)

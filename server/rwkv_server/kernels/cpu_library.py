"""Finds and opens the C++ kernels for the machine at hand.

There is one library per instruction set; each says itself whether the machine can run it. Without
one the engine runs on torch, and one line of the log says so.
"""

from __future__ import annotations

import ctypes
import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from rwkv_server.kernels import cpu_build, cpu_tables

_log = logging.getLogger(__name__)
_P, _I64, _I32, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_int
_SPANS = ctypes.POINTER(cpu_tables.Span)
_WKV7 = (_P, _P, _P, _P, _P, _P, _P, cpu_tables.Slots, _I64, _I64, _I64, _SPANS, _I64, _P)
_SIGNATURES = {
    "rwkv_supported": (_INT, ()),
    "rwkv_source": (ctypes.c_char_p, ()),
    "rwkv_open": (_P, (ctypes.POINTER(cpu_tables.Model), _INT)),
    "rwkv_close": (None, (_P,)),
    "rwkv_forward": (None, (_P, _P, _P, _P, _I64, _SPANS, _I64)),
    "rwkv_linear": (None, (_P, ctypes.POINTER(cpu_tables.Matrix), _P, _I32, _I64, _P)),
    "rwkv_wkv7": (None, _WKV7),
}


@dataclass(frozen=True)
class Library:
    """One opened library; `name` is its instruction set."""

    name: str
    calls: ctypes.CDLL

    def open_engine(self, model: cpu_tables.Model, threads: int) -> int:
        """A handle on `model`, whose table must stay alive, with that many threads."""
        return int(self.calls.rwkv_open(ctypes.byref(model), threads))

    def linear(
        self,
        engine: int,
        weight: cpu_tables.Matrix,
        x: torch.Tensor,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(rows, inputs) of any plain type times the transposed matrix: (rows, outputs), fp32."""
        x = x.contiguous()
        if out is None:
            out = torch.empty(len(x), weight.outputs)
        kind = cpu_tables.TYPES[x.dtype]
        self.calls.rwkv_linear(
            engine, ctypes.byref(weight), x.data_ptr(), kind, len(x), out.data_ptr()
        )
        return out


def open_library(path: Path, name: str) -> Library:
    """Open one library and declare its functions."""
    calls = ctypes.CDLL(str(path))
    for function, (result, arguments) in _SIGNATURES.items():
        entry = getattr(calls, function)
        entry.restype, entry.argtypes = result, arguments
    return Library(name, calls)


@cache
def find_libraries(folder: Path = cpu_build.LIBRARIES) -> tuple[Library, ...]:
    """All libraries that this machine can run, best first."""
    found = []
    wanted = cpu_build.source_digest()
    for target in cpu_build.TARGETS:
        path = cpu_build.library_path(folder, target)
        if not path.exists():
            continue
        try:
            library = open_library(path, target.name)
        except (OSError, AttributeError) as error:  # another machine's, cut off, or an old one
            _log.warning("%s can't be used (%s); run %s", path, error, _RUN)
            continue
        if not library.calls.rwkv_supported():
            continue
        if library.calls.rwkv_source().decode() != wanted:
            _log.warning("%s is not made from the sources beside it; run %s", path, _RUN)
            continue
        found.append(library)
    return tuple(found)


_RUN = f"python {cpu_build.__file__}"


@cache
def best_library() -> Library | None:
    """The fastest library for this machine, or None: the reason is in the log."""
    libraries = find_libraries()
    if not libraries:
        _log.warning("no C++ kernels for this machine, torch computes: to make them run %s", _RUN)
        return None
    _log.info("C++ kernels: %s", libraries[0].name)
    return libraries[0]


@cache
def plain_engine(library: Library, threads: int = 1) -> int:
    """A handle without a model, for single products and the recurrence alone."""
    return library.open_engine(cpu_tables.Model(), threads)

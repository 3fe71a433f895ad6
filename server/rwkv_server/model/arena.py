"""Memory on huge pages: what a model's weights move into, and what its largest results lie in.

A decoding step reads every weight once: with pages of 4 KiB a fifth of that time goes into finding
them. Weights stay ordinary tensors, row after row; no second copy is kept.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections.abc import Sequence

import torch

_LINE = 64
_HUGE = 2 << 20
# Logits of 512 sequences and 65,536 tokens. Those of a whole prompt, which few ask for, would stay
# for good.
_MOST_KEPT = 128 << 20


def _places(tensors: Sequence[torch.Tensor]) -> tuple[list[int], int]:
    """Where each tensor begins, on a cache line, and the bytes of all."""
    places, end = [], 0
    for tensor in tensors:
        places.append(end)
        end += -(-tensor.nbytes // _LINE) * _LINE
    return places, end


def _map(size: int) -> mmap.mmap:
    """`size` bytes of new memory, on huge pages where the system has them."""
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A kernel that was built without them refuses the wish.
    with contextlib.suppress(AttributeError, OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _reserve(size: int) -> torch.Tensor:
    """`size` bytes that begin on a huge page's boundary; the tensor owns them."""
    pages = _map(size + _HUGE)
    memory = torch.frombuffer(pages, dtype=torch.uint8)
    start = -memory.data_ptr() % _HUGE
    return memory[start : start + size]


def move(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Move the parameters' values into one new arena, one after another.

    Each one's old memory goes as soon as it's moved, so that at most one exists twice.
    """
    places, size = _places([parameter.data for parameter in parameters])
    memory = _reserve(size)
    for parameter, place in zip(parameters, places, strict=True):
        old = parameter.data
        new = memory[place : place + old.nbytes].view(old.dtype).view(old.shape)
        parameter.data = new.copy_(old)


class Results:
    """Memory for one large result at a time, used again when nobody holds the last one.

    The C library gives blocks of this size back to the system at once: each step would pay for
    clearing new pages.
    """

    def __init__(self) -> None:
        """Nothing is reserved before it's asked for."""
        self._pages = _map(mmap.PAGESIZE)

    def empty(self, rows: int, columns: int) -> torch.Tensor:
        """(rows, columns) in fp32, not set."""
        count = rows * columns
        if 4 * count > _MOST_KEPT:
            return torch.empty(rows, columns)
        # One reference is this object's, one the question's; a tensor has another.
        if len(self._pages) < 4 * count or sys.getrefcount(self._pages) > 2:
            self._pages = _map(max(4 * count, mmap.PAGESIZE))
        memory = torch.frombuffer(self._pages, dtype=torch.float32, count=count)
        return memory.view(rows, columns)

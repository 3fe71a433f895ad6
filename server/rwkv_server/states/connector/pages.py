"""Where this rank's share of a snapshot lies in the engine's cache, and where in a slot.

Tensor-parallel ranks have their heads of the WKV states and both token shifts whole, pipeline ranks
have their layers. Rows are bytes: nothing here knows a type of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from rwkv_server.states.layout import StateLayout


@dataclass(frozen=True)
class Rank:
    """A worker's place among the engine's.

    Attributes:
        heads: its index among those that share heads, 0 if none do.
        index: its index among all.
    """

    heads: int
    index: int


@dataclass(frozen=True)
class Rows:
    """Consecutive bytes of a snapshot, in the cache and in a slot.

    Attributes:
        pages: (blocks, bytes) of uint8; rows may be far apart.
        offset: of the bytes in a slot.
        shared: whether every rank that shares heads has the same bytes.
    """

    pages: torch.Tensor
    offset: int
    shared: bool

    @property
    def nbytes(self) -> int:
        """Bytes of a row."""
        return int(self.pages.shape[1])


def find_rows(
    layout: StateLayout, layers: Mapping[int, Sequence[torch.Tensor]], rank: Rank
) -> list[Rows]:
    """This rank's rows, longest possible.

    Args:
        layout: of whole snapshots.
        layers: by the layer's number its token shift, WKV state and channel shift, block first.
        rank: this one.
    """
    rows = []
    for layer, states in sorted(layers.items()):
        for spec, state in zip(layout.of_layer(layer), states, strict=True):
            pages = _bytes(state)
            shared = pages.shape[1] == spec.nbytes
            share = 0 if shared else rank.heads * pages.shape[1]
            rows.append(Rows(pages, spec.offset + share, shared))
    return list(_merge(rows))


def _bytes(state: torch.Tensor, nbytes: int | None = None) -> torch.Tensor:
    """(blocks, ...) of any type → (blocks, bytes), on the same memory."""
    size = state.element_size()
    nbytes = state[0].numel() * size if nbytes is None else nbytes
    raw = torch.empty(0, dtype=torch.uint8, device=state.device)
    start, step = state.storage_offset() * size, state.stride(0) * size
    return raw.set_(state.untyped_storage(), start, (len(state), nbytes), (step, 1))


def _merge(rows: Iterable[Rows]) -> Iterable[Rows]:
    """Join rows that follow each other both in the cache and in a slot: mostly a whole page."""
    last: Rows | None = None
    for row in rows:
        if last is not None and _follows(last, row):
            last = Rows(_bytes(last.pages, last.nbytes + row.nbytes), last.offset, last.shared)
            continue
        if last is not None:
            yield last
        last = row
    if last is not None:
        yield last


def _follows(one: Rows, other: Rows) -> bool:
    a, b = one.pages, other.pages
    return (
        a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
        and a.storage_offset() + one.nbytes == b.storage_offset()
        and a.stride(0) == b.stride(0)
        and one.offset + one.nbytes == other.offset
        and one.shared == other.shared
    )

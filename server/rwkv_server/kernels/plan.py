"""Which rows of a step's batch belong to which state slot, worked out once per step.

A step is a flat run of rows (tokens). A segment is a request's consecutive rows with the slot that
holds its state: one row when decoding, many when a prompt is read, any mix in one step. Every layer
uses the same plan. No arithmetic on states here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

# Rows that the chunked form takes at once. Decay is at least 0.545 a row, so over 16 rows its
# product and the product's inverse stay within 1e-5..1e5 and lose no precision in fp32.
CHUNK = 16


@dataclass(frozen=True)
class Chunks:
    """The segments longer than one row, cut into chunks of `CHUNK` rows, the last one padded.

    Attributes:
        rows: (chunks, CHUNK) row of each place; padding points at row 0 and is masked.
        mask: (chunks, CHUNK, 1, 1) True where a row is real.
        targets: rows of the real places, flat, in chunk order.
        slots: (segments,) state slot of each long segment, longest segment first.
        steps: per step of the serial part, the chunk of each segment that still has one; segments
            are ordered by length, so those are always the first ones.
    """

    rows: torch.Tensor
    mask: torch.Tensor
    targets: torch.Tensor
    slots: torch.Tensor
    steps: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Plan:
    """One step's segments, and as index tensors where a kernel asks for those.

    Attributes:
        num_rows: rows that belong to a segment; a padded batch has more rows after them.
        spans: (first row, rows, slot) of each segment.
        new_slots: slots whose request starts here: they hold another request's leftovers.
        device: where the index tensors go.
    """

    num_rows: int
    spans: tuple[tuple[int, int, int], ...]
    new_slots: tuple[int, ...]
    device: torch.device | str

    def _index(self, values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    @cached_property
    def starts(self) -> torch.Tensor:
        """(segments,) first row of each segment."""
        return self._index([start for start, _, _ in self.spans])

    @cached_property
    def ends(self) -> torch.Tensor:
        """(segments,) last row of each segment."""
        return self._index([start + length - 1 for start, length, _ in self.spans])

    @cached_property
    def slots(self) -> torch.Tensor:
        """(segments,) its state slot."""
        return self._index([slot for _, _, slot in self.spans])

    @cached_property
    def fresh(self) -> torch.Tensor:
        """`new_slots` as a tensor."""
        return self._index(self.new_slots)

    @cached_property
    def single_rows(self) -> torch.Tensor:
        """Rows of the one-row segments."""
        return self._index([start for start, length, _ in self.spans if length == 1])

    @cached_property
    def single_slots(self) -> torch.Tensor:
        """Their slots."""
        return self._index([slot for _, length, slot in self.spans if length == 1])

    @cached_property
    def chunks(self) -> Chunks | None:
        """The longer segments, None if there are none."""
        long = sorted((s for s in self.spans if s[1] > 1), key=lambda s: -s[1])
        return _build_chunks(long, self.device) if long else None


def build_plan(
    lengths: Sequence[int],
    slots: Sequence[int],
    fresh: Sequence[bool],
    device: torch.device | str = "cpu",
) -> Plan:
    """Plan a step whose segments follow each other in the batch.

    Args:
        lengths: rows of each segment; 0 marks a padded request, which touches no slot.
        slots: state slot of each segment.
        fresh: whether its request starts with this segment.
        device: where the index tensors go.
    """
    spans, new, row = [], [], 0
    for length, slot, starts_here in zip(lengths, slots, fresh, strict=True):
        if length:
            spans.append((row, length, slot))
            if starts_here:
                new.append(slot)
        row += length
    return Plan(row, tuple(spans), tuple(new), device)


def _build_chunks(long: list[tuple[int, int, int]], device: torch.device | str) -> Chunks:
    counts = torch.tensor([-(-length // CHUNK) for _, length, _ in long])
    first = counts.cumsum(0) - counts
    places = torch.arange(CHUNK)
    rows, mask = [], []
    for (start, length, _), count in zip(long, counts.tolist(), strict=True):
        offsets = torch.arange(count)[:, None] * CHUNK + places
        rows.append(start + offsets)
        mask.append(offsets < length)
    real = torch.cat(mask)
    place = torch.cat(rows).where(real, torch.zeros((), dtype=torch.int64))
    steps = [first[counts > step] + step for step in range(int(counts[0]))]
    return Chunks(
        rows=place.to(device),
        mask=real[:, :, None, None].to(device),
        targets=place[real].to(device),
        slots=torch.tensor([slot for _, _, slot in long], device=device),
        steps=tuple(step.to(device) for step in steps),
    )

"""The plan of a step whose numbers stay on the device, for kernels that look them up themselves.

A GPU's step must not wait for the host, and a step that only decodes is recorded once and replayed
with other requests. So nothing here reads a tensor's values, and shapes depend on the batch's size
alone. Same meaning as `plan.Plan`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

NO_SLOT = -1
# See `plan.CHUNK`; the kernels have this number built in.
CHUNK = 16


@dataclass(frozen=True)
class DevicePlan:
    """One step's segments as device tensors.

    Attributes:
        num_rows: rows of the batch, padding included.
        decodes: whether every segment is row i of the batch with slot i, as in a step that only
            decodes; `starts` and `owners` are not looked at then.
        slots: (segments,) int32, state slot of each segment, `NO_SLOT` for a padded one.
        fresh: (segments,) int8, 1 where the request starts here: what its slot holds is another
            request's.
        starts: (segments + 1,) int32, first row of each segment, then the row after the last one.
        owners: (num_rows,) int32, segment of each row, `NO_SLOT` for a padded one.
        chunk_firsts: (chunks,) int32, first row of each chunk of up to `CHUNK` rows into which the
            segments of two rows and more are cut; there is room for as many as there may be.
        chunk_ends: (chunks,) int32, the row after the last one; 0 for the places left over.
    """

    num_rows: int
    decodes: bool
    slots: torch.Tensor
    fresh: torch.Tensor
    starts: torch.Tensor
    owners: torch.Tensor
    chunk_firsts: torch.Tensor
    chunk_ends: torch.Tensor

    def fresh_slots(self) -> torch.Tensor:
        """Slots of the requests that start here; waits for the device."""
        return self.slots[(self.fresh > 0) & (self.slots >= 0)].long()


def build_device_plan(
    starts: torch.Tensor,
    slots: torch.Tensor,
    fresh: torch.Tensor,
    num_rows: int,
    *,
    decodes: bool,
) -> DevicePlan:
    """Plan a step from device tensors, without waiting for them.

    Args:
        starts: (segments + 1,) first row of each segment, then the row after the last one. Of a
            padded segment both are the same.
        slots: (segments,) state slot; below 0 there is none.
        fresh: (segments,) whether the request starts with this segment.
        num_rows: rows of the batch, padding included.
        decodes: whether no segment has more than one row and the padded ones come last.
    """
    starts = starts.to(torch.int32)
    slots = slots.to(torch.int32).where((starts.diff() > 0) & (slots >= 0), NO_SLOT)
    fresh = fresh.to(torch.int8)
    if decodes:
        return DevicePlan(num_rows, True, slots, fresh, starts, slots, slots, slots)
    owners = _owners(starts, num_rows)
    return DevicePlan(num_rows, False, slots, fresh, starts, owners, *_chunks(starts, num_rows))


def _owners(starts: torch.Tensor, num_rows: int) -> torch.Tensor:
    """The segment of each row."""
    rows = torch.arange(num_rows, dtype=torch.int32, device=starts.device)
    owners = torch.searchsorted(starts, rows, right=True, out_int32=True) - 1
    return owners.where(rows < starts[-1], NO_SLOT)


def _chunks(starts: torch.Tensor, num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """First row of each chunk and the row after its last one."""
    lengths = starts.diff()
    counts = torch.where(lengths > 1, (lengths + CHUNK - 1) // CHUNK, 0)
    ends = counts.cumsum(0, dtype=torch.int32)
    # As many as there may be: each full chunk has its rows, each segment of two rows a last one.
    room = num_rows // CHUNK + min(len(lengths), num_rows // 2)
    places = torch.arange(room, dtype=torch.int32, device=starts.device)
    segment = torch.searchsorted(ends, places, right=True, out_int32=True)
    segment = segment.clamp(max=len(lengths) - 1)
    first = starts[segment] + CHUNK * (places - (ends - counts)[segment])
    end = torch.minimum(first + CHUNK, starts[segment + 1])
    return first, end.where(places < ends[-1], 0)

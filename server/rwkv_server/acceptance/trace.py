"""Reads a step trace: who had which slot when, and the counts that the scenario is judged by.

Pure. A trace is a list of steps, a step a list of segments in batch order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

COUNTS = (
    "prefill tokens",
    "steps",
    "mixed steps",
    "steps with several prefills",
    "fresh segments",
    "continued segments",
)


@dataclass(frozen=True)
class Segment:
    """One request's part of one step.

    Attributes:
        query: tokens of this step.
        computed: tokens of the request taken in earlier steps.
        fresh: the request starts here.
        held: whether its slot held anything before, in any layer; None unless fresh.
        left: whether it still did after it was cleared, in any layer; None unless fresh.
    """

    request: str
    query: int
    computed: int
    slot: int
    fresh: bool
    held: bool | None = None
    left: bool | None = None


Step = tuple[Segment, ...]


def parse_step(lines: Iterable[str], requests: Sequence[str]) -> Step:
    """The lines that one step wrote, with the requests' names in batch order."""
    entries = [json.loads(line) for line in lines]
    (rows,) = [entry["step"] for entry in entries if "step" in entry]
    held: dict[int, bool] = {}
    left: dict[int, bool] = {}
    for entry in entries:
        if "layer" in entry:
            for slot, before, after in zip(
                entry["slots"], entry["before"], entry["after"], strict=True
            ):
                held[slot] = held.get(slot, False) or before
                left[slot] = left.get(slot, False) or after
    return tuple(
        Segment(name, query, computed, slot, computed == 0, held.get(slot), left.get(slot))
        if computed == 0
        else Segment(name, query, computed, slot, False)
        for name, (query, computed, slot) in zip(requests, rows, strict=True)
    )


def render(steps: Sequence[Step]) -> bytes:
    """The trace as JSON lines, the same bytes for the same trace."""
    lines = [
        json.dumps([asdict(segment) for segment in step], sort_keys=True, separators=(",", ":"))
        for step in steps
    ]
    return "".join(line + "\n" for line in lines).encode("ascii")


def parse(data: bytes) -> list[Step]:
    """The inverse of `render`; ValueError or TypeError for anything else."""
    return [tuple(Segment(**s) for s in json.loads(line)) for line in data.splitlines()]


def digest(steps: Sequence[Step]) -> str:
    """SHA-256 of the rendered trace."""
    return hashlib.sha256(render(steps)).hexdigest()


def count(steps: Sequence[Step], prompts: Mapping[str, int]) -> dict[str, int]:
    """The counts by what was computed: a segment is a prefill while its prompt isn't all read."""
    return _count(steps, [[s for s in step if s.computed < prompts[s.request]] for step in steps])


def count_by_rows(steps: Sequence[Step]) -> dict[str, int]:
    """The counts as vLLM 0.18 tells decodes from prefills: by the rows of a batch alone.

    One-token segments at the head of a batch are decodes there, a one-token prompt too; all that
    follows the first longer segment is a prefill.
    """
    return _count(steps, [_after_first_long(step) for step in steps])


def count_by_length(steps: Sequence[Step]) -> dict[str, int]:
    """The counts if every one-token segment is a decode, wherever it stands."""
    return _count(steps, [[s for s in step if s.query > 1] for step in steps])


def reused_slots(steps: Sequence[Step]) -> dict[int, tuple[bool, bool]]:
    """Slots that one request took over from another: held something before, holds it still."""
    owners: dict[int, str] = {}
    reused: dict[int, tuple[bool, bool]] = {}
    for segment in (segment for step in steps for segment in step):
        if segment.fresh and segment.slot in owners:
            held, left = reused.get(segment.slot, (True, False))
            reused[segment.slot] = (held and bool(segment.held), left or bool(segment.left))
        owners[segment.slot] = segment.request
    return reused


def _after_first_long(step: Step) -> list[Segment]:
    first = next((place for place, s in enumerate(step) if s.query > 1), len(step))
    return list(step[first:])


def _count(steps: Sequence[Step], prefills: Sequence[list[Segment]]) -> dict[str, int]:
    flat = [segment for group in prefills for segment in group]
    pairs = list(zip(steps, prefills, strict=True))
    values = (
        sum(segment.query for segment in flat),
        len(steps),
        sum(0 < len(group) < len(step) for step, group in pairs),
        sum(len(group) > 1 for group in prefills),
        sum(segment.fresh for segment in flat),
        sum(not segment.fresh for segment in flat),
    )
    return dict(zip(COUNTS, values, strict=True))

"""An optional record of what each step did to which state slot, one JSON object a line.

Switched on by a value in vLLM's `additional_config`, so that it reaches the engine wherever its
worker runs. Off in every pod that serves: without the value there is no object and no cost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

KEY = "rwkv_step_trace"


class StepTrace:
    """Appends to one file; several writers of one process may share it, lines stay whole."""

    def __init__(self, path: Path) -> None:
        """Write to `path`, whether it's there or not."""
        self._path = path

    def step(self, lengths: Sequence[int], computed: Sequence[int], slots: Sequence[int]) -> None:
        """A step begins; one entry per request in batch order.

        Args:
            lengths: tokens of this step.
            computed: tokens taken in earlier steps.
            slots: state slots.
        """
        rows = zip(lengths, computed, slots, strict=True)
        self._write({"step": [list(row) for row in rows if row[0]]})

    def cleared(
        self, layer: str, slots: Sequence[int], before: Sequence[bool], after: Sequence[bool]
    ) -> None:
        """A layer has cleared the slots of new requests: whether each held anything but zeros."""
        self._write(
            {"layer": layer, "slots": list(slots), "before": list(before), "after": list(after)}
        )

    def _write(self, entry: dict[str, Any]) -> None:
        with self._path.open("a", encoding="ascii") as file:
            file.write(json.dumps(entry) + "\n")


def open_trace(additional_config: Any) -> StepTrace | None:
    """The trace that vLLM's `additional_config` asks for, if it does."""
    path = additional_config.get(KEY) if isinstance(additional_config, Mapping) else None
    return None if path is None else StepTrace(Path(path))

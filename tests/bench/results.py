"""The file format of a bench: rows with a value, and a peer measured in the same run."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).resolve().parents[2] / "build" / "bench"


@dataclasses.dataclass(frozen=True)
class Row:
    """One measured value.

    `ratio` is ours over the peer's, both from one run; without a peer all three are None.
    `spread` is (maximum - minimum) / median over the runs.
    """

    name: str
    value: float
    unit: str
    better: str
    runs: int
    spread: float
    peer: str | None = None
    peer_value: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The row as the file holds it."""
        ratio = self.value / self.peer_value if self.peer_value else None
        return {**dataclasses.asdict(self), "ratio": ratio}


def write(part: str, rows: Sequence[Row], commands: Sequence[str]) -> Path:
    """Write build/bench/<part>.json and return its path."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    path = DIRECTORY / f"{part}.json"
    content = {
        "machine": machine(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commands": list(commands),
        "rows": [row.as_dict() for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def machine() -> dict[str, Any]:
    """What a reader must know of the machine to compare."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()

"""Write a safetensors file tensor by tensor: one of them in memory at a time."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

BYTES = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True)
class Entry:
    """One tensor to write: its type and shape now, its elements when their turn comes."""

    dtype: str
    shape: tuple[int, ...]
    load: Callable[[], numpy.ndarray[Any, Any]]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape) * BYTES[self.dtype]


def write_file(path: Path, entries: Mapping[str, Entry], on_written: Callable[[int], None]) -> None:
    """Write `entries` in order of their names and sync; `on_written` hears bytes so far."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name in sorted(entries):
        entry = entries[name]
        end = position + entry.nbytes
        header[name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [position, end],
        }
        position = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    done = 0
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for name in sorted(entries):
            elements = numpy.ascontiguousarray(entries[name].load())
            file.write(elements.data.cast("B"))
            done += entries[name].nbytes
            on_written(done)
        file.flush()
        os.fsync(file.fileno())

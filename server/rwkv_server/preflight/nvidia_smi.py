"""Reads what nvidia-smi prints: each GPU's name and compute capability, driver and CUDA version."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rwkv_server.preflight.machine import Machine, Unreadable

_QUERY = ("--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader")
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d+\.\d+)")


@dataclass(frozen=True)
class Gpu:
    """One line of the query."""

    name: str
    driver: str
    compute_capability: str


def gpus(machine: Machine) -> list[Gpu]:
    """Every visible GPU."""
    found = []
    for line in machine.run("nvidia-smi", *_QUERY).splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3:
            found.append(Gpu(*fields))
    if not found:
        raise Unreadable("nvidia-smi lists no GPU")
    return found


def cuda_version(machine: Machine) -> str | None:
    """The highest CUDA version that the driver runs."""
    found = _CUDA.search(machine.run("nvidia-smi"))
    return found[1] if found else None

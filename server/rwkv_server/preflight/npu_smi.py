"""Reads what npu-smi prints: which chips there are, and the driver's version.

A2 boards name a chip by type and name (`Ascend` + `910B3`), A3 boards by name and NPU name
(`Ascend910` + `9392`); joined in that way they equal what torch_npu calls the device.
"""

from __future__ import annotations

import re

from rwkv_server.preflight.machine import Machine, Unreadable

_BANNER = re.compile(r"npu-smi\s+(?P<tool>\S+)\s+Version:\s*(?P<driver>[^\s|]+)")


def chip_ids(machine: Machine) -> list[tuple[str, str]]:
    """(NPU id, chip id) of each compute chip; the boards' own controllers are left out."""
    found = []
    for line in machine.run("npu-smi", "info", "-m").splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[0].isdigit() and fields[1].isdigit() and fields[3] != "Mcu":
            found.append((fields[0], fields[1]))
    if not found:
        raise Unreadable("npu-smi lists no chip")
    return found


def chip_name(machine: Machine, npu: str, chip: str) -> str | None:
    """The whole name of one chip, such as Ascend910B3 or Ascend910_9392."""
    board = _fields(machine.run("npu-smi", "info", "-t", "board", "-i", npu, "-c", chip))
    name = board.get("Chip Name")
    if name is None:
        return None
    if "NPU Name" in board:
        return f"{name}_{board['NPU Name']}"
    return board.get("Chip Type", "") + name


def driver_version(machine: Machine) -> str | None:
    """The driver's version from the first lines of `npu-smi info`."""
    found = _BANNER.search(machine.run("npu-smi", "info"))
    return found["driver"] if found else None


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}

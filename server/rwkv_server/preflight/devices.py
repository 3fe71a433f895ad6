"""How many devices the engine would see, by the tools and the variables that choose among them.

The engine takes the first ones that it sees: one too many is another pod's, and a pod that sees
too few would fail later and say less.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rwkv_server.preflight import nvidia_smi, probes
from rwkv_server.preflight.machine import Machine, Reading, Unreadable

# The last that is set counts: the container runtime is told first, the framework chooses from that.
ASCEND_VARIABLES = ("ASCEND_RT_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES")
CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"
_NONE = ("", "void", "none", "-1", "NoDevFiles")
_RANGE = re.compile(r"(\d{1,4})-(\d{1,4})")
_ONE = re.compile(r"\d{1,4}|npu\d{1,4}|Ascend\w*-\d{1,4}(_\d+)?|(GPU|MIG)-[\w/.-]+")


def read_devices(vendor: str, machine: Machine) -> list[Reading]:
    """One reading per place that counts."""
    if vendor == "ascend":
        # torch_npu counts what the variables leave; they have to say the same.
        named = (_named(machine, variable) for variable in ASCEND_VARIABLES)
        chosen = next((reading for reading in named if reading is not None), None)
        counted = _counted(probes.TORCH_NPU, lambda: _probed(machine, probes.TORCH_NPU))
        return [counted, *([chosen] if chosen else [])]
    if vendor == "nvidia":
        # Both count what CUDA hides.
        hidden = _named(machine, CUDA_VARIABLE)
        counted_twice = [
            _counted("nvidia-smi", lambda: len(nvidia_smi.gpus(machine))),
            _counted(probes.NVML, lambda: _probed(machine, probes.NVML)),
        ]
        return [_narrowed(reading, hidden) for reading in counted_twice]
    return [Reading(vendor, None, "stacks of this vendor have no devices")]


def count_named(text: str) -> int | None:
    """How many devices a variable's value names; None where it names no number of them.

    Ids, ranges such as 0-3, names such as Ascend910-2, and UUIDs, joined by commas.
    """
    if text.strip() in _NONE:
        return 0
    found: set[str] = set()
    for entry in map(str.strip, text.split(",")):
        if span := _RANGE.fullmatch(entry):
            found.update(map(str, range(int(span[1]), int(span[2]) + 1)))
        elif _ONE.fullmatch(entry):
            found.add(entry)
        else:
            return None
    return len(found)


def _counted(source: str, count: Callable[[], int]) -> Reading:
    try:
        return Reading(source, str(count()))
    except Unreadable as error:
        return Reading(source, None, str(error))


def _probed(machine: Machine, probe: str) -> int:
    return len(probes.ask(machine, probe).get("devices") or [])


def _named(machine: Machine, variable: str) -> Reading | None:
    """What a variable leaves; None where it isn't set, which hides nothing."""
    text = machine.variable(variable)
    if text is None:
        return None
    count = count_named(text)
    told = None if count is None else str(count)
    return Reading(variable, told, "" if told else f"{text[:40]} is no list of devices")


def _narrowed(reading: Reading, hidden: Reading | None) -> Reading:
    """A count, less what a variable hides; a list that nobody can read hides anything."""
    if hidden is None or reading.value is None:
        return reading
    if hidden.value is None:
        return Reading(hidden.source, None, hidden.problem)
    fewest = min(int(reading.value), int(hidden.value))
    return Reading(f"{reading.source} and {hidden.source}", str(fewest))

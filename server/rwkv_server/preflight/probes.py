"""The two probes' answers as values, for the readers of single facts."""

from __future__ import annotations

import json
from typing import Any

from rwkv_server.preflight.machine import PYTHON, Machine, Unreadable

TORCH_NPU = "torch_npu"
NVML = "NVML"
_MODULES = {
    TORCH_NPU: "rwkv_server.preflight.npu_probe",
    NVML: "rwkv_server.preflight.nvml_probe",
}


def ask(machine: Machine, probe: str) -> dict[str, Any]:
    """The JSON object that a probe prints; Unreadable as `Machine.run`."""
    # Libraries may print before us; our object is the last line.
    lines = machine.run(PYTHON, "-m", _MODULES[probe]).strip().splitlines()
    try:
        answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        answer = None
    if not isinstance(answer, dict):
        raise Unreadable(f"the {probe} probe printed no answer")
    return answer


def text(machine: Machine, probe: str, key: str) -> str | None:
    """One field of a probe's answer as text."""
    value = ask(machine, probe).get(key)
    return None if value is None else str(value)

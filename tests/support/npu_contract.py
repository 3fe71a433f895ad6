"""Runs an NPU's kernels on the CPU with Ascend's torch; prints operators and error as JSON.

For the Ascend environment's Python. torch_npu itself can't be loaded without CANN, but its package
lists the operators that it implements.
"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import kernel_cases
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rwkv_server.kernels import dispatch, naive, torch_rows
from rwkv_server.kernels.plan import build_plan

STEPS = (
    ([1, 0, 20, 1, 40], [3, 9, 1, 0, 2], [False, False, True, False, False]),
    ([1, 1, 1, 1], [3, 1, 0, 2], [False, True, False, False]),
)
HEADS, HEAD = 2, 64
ENTRY = re.compile(r"\s*- (?:func: )?([a-zA-Z_0-9]+(?:\.[a-zA-Z_0-9]+)?)(?:\(.*)?$")


class Recorder(TorchDispatchMode):
    """Keeps which operators reach a device."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func)
        return func(*args, **(kwargs or {}))


def implemented() -> set[str]:
    """The operators that torch_npu's package says it implements."""
    found = importlib.util.find_spec("torch_npu")
    assert found is not None and found.submodule_search_locations
    folder = Path(found.submodule_search_locations[0]) / "csrc" / "aten"
    names: set[str] = set()
    for file in folder.glob("*.yaml"):
        supported = file.read_text().partition("\nsupported:")[2]
        names |= {m[1] for line in supported.splitlines() if (m := ENTRY.match(line))}
    return names


def needs_kernel(operator: Any) -> bool:
    """Whether a device must bring code for it: it's no view and no composition of others."""
    keys = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return not operator.is_view and not any(has(operator.name(), key) for key in keys)


def short_name(operator: Any) -> str:
    schema = operator._schema
    overload = f".{schema.overload_name}" if schema.overload_name else ""
    return schema.name.removeprefix("aten::") + overload


def run_block(step: kernel_cases.Step, recorder: Recorder) -> float:
    """One block's work between its matrix products; returns the recurrence's largest error."""
    kernels = dispatch.choose_kernels("npu")
    plan = build_plan(*step)
    rows, size = plan.num_rows, HEADS * HEAD
    inputs = kernel_cases.rows(rows, HEADS, HEAD, HEAD, seed=1)
    state = torch.zeros(10, HEADS, HEAD, HEAD)
    wanted = naive.wkv7(*inputs, state=state.clone(), plan=plan)
    with recorder:
        y = kernels.wkv7(*inputs, state=state, plan=plan)
        x = y.flatten(1).bfloat16()
        kernels.mix(x, torch.zeros(10, 1, size).bfloat16(), torch.ones(6, 1, size).bfloat16(), plan)
        for gate in (None, x):
            projected = torch_rows.Projected(x, x, x, x, x, gate)
            scales = torch_rows.KeyScales(x[0], x[1])
            heads = kernels.prepare(projected, x.clone(), scales, HEAD)
        readout = torch_rows.Readout(x[0].view(HEADS, HEAD), x[0], x[1], 64e-5)
        kernels.finish(y, heads, readout, x)
    return float((y - wanted).abs().max())


if __name__ == "__main__":
    recorder = Recorder()
    errors = [run_block(step, recorder) for step in STEPS]
    needed = {short_name(operator) for operator in recorder.seen if needs_kernel(operator)}
    listed = implemented()
    report = {
        "torch": torch.__version__,
        "error": max(errors),
        "needed": sorted(needed),
        "missing": sorted(needed - listed),
        "listed": len(listed),
    }
    print(json.dumps(report))

"""Compiles the Triton kernels for chips that aren't here, as our code would launch them there.

`python tests/support/triton_targets.py` in the engine environment, with Triton on PYTHONPATH and
without its interpreter, prints a JSON list: kernel, target and what the compiled code needs. What
to compile is read off real calls of our functions on tensors without data, so that a change of a
launch is a change here.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from rwkv_server.kernels import torch_rows, triton_chunks, triton_rows, triton_wkv7
from rwkv_server.kernels.device_plan import DevicePlan, build_device_plan

HEADS, HEAD = 2, 64
MODULES = (triton_chunks, triton_rows, triton_wkv7)
TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int8: "*i8",
}


class Target(NamedTuple):
    """A chip and how Triton multiplies fp32 there, see `triton_chunks.product_precision`."""

    chip: GPUTarget
    precision: str

    @property
    def name(self) -> str:
        return f"{self.chip.backend}-{self.chip.arch}"


TARGETS = (
    Target(GPUTarget("cuda", 80, 32), "tf32x3"),
    Target(GPUTarget("cuda", 90, 32), "tf32x3"),
    Target(GPUTarget("hip", "gfx942", 64), "ieee"),
)


class Launch(NamedTuple):
    """One launch that our code asked for."""

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]


class Recorder:
    """Stands in for a kernel and keeps what it's launched with."""

    def __init__(self, kernel: Any, launches: list[Launch]) -> None:
        self._kernel, self._launches = kernel, launches

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *arguments, **options: self._launches.append(
            Launch(self._kernel, arguments, options)
        )


def record(precision: str) -> list[Launch]:
    """Call every function once with each kind of step; returns what they launched."""
    launches: list[Launch] = []
    kept = [(module, dict(vars(module))) for module in MODULES]
    for module, members in kept:
        for name, member in members.items():
            if isinstance(member, triton.JITFunction):
                setattr(module, name, Recorder(member, launches))
    triton_chunks.product_precision = lambda _device: precision
    try:
        for decodes in (True, False):
            call_everything(decodes)
    finally:
        for module, members in kept:
            vars(module).update(members)
    return launches


def call_everything(decodes: bool) -> None:
    """One block's launches, on tensors without data; the model's type is bfloat16."""
    plan = empty_plan(decodes)
    rows, size = plan.num_rows, HEADS * HEAD

    def half(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16, device="meta")

    for mixes in (6, 1):
        triton_rows.mix(half(rows, size), half(4, 1, size), half(mixes, 1, size), plan)
    state = torch.empty(4, HEADS, HEAD, HEAD, device="meta")
    for gate in (None, half(rows, size)):
        projected = torch_rows.Projected(*(half(rows, size) for _ in range(5)), gate)
        scales = torch_rows.KeyScales(half(size), half(size))
        heads = triton_rows.prepare(projected, half(rows, size), scales, HEAD)
    for initial in (state[0], None):
        y = triton_wkv7.wkv7(**heads._asdict(), state=state, plan=plan, initial=initial)
    readout = torch_rows.Readout(half(HEADS, HEAD), half(size), half(size), 64e-5)
    triton_rows.finish(y, heads, readout, half(rows, size))


def empty_plan(decodes: bool) -> DevicePlan:
    lengths = torch.tensor([1, 1] if decodes else [1, 20])
    starts = torch.cat((lengths.new_zeros(1), lengths.cumsum(0)))
    return build_device_plan(starts, lengths, lengths, int(starts[-1]), decodes=decodes)


def source(launch: Launch) -> tuple[ASTSource, dict[str, Any]]:
    """What Triton compiles for a launch, and its compile options."""
    names = launch.kernel.arg_names
    options = {key: value for key, value in launch.options.items() if key not in names}
    constants = {(names.index(k),): v for k, v in launch.options.items() if k in names}
    signature = {name: "constexpr" for name in names}
    aligned = {}
    for place, value in enumerate(launch.arguments):
        if isinstance(value, torch.Tensor):
            signature[names[place]] = TYPES[value.dtype]
            aligned[(place,)] = [["tt.divisibility", 16]]
        else:
            signature[names[place]] = "fp32" if isinstance(value, float) else "i32"
    return ASTSource(launch.kernel, signature, constants, aligned), options


def read_usage(compiled: Any, target: Target) -> dict[str, int]:
    """Registers and spilled bytes a thread, shared bytes a program."""
    if target.chip.backend == "hip":
        found = dict(re.findall(r"\.(\w+):\s+(\d+)", compiled.asm["amdgcn"]))
        registers = int(found["vgpr_count"])
        spilled = 4 * int(found["vgpr_spill_count"]) + int(found["private_segment_fixed_size"])
    else:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            Path(file.name).write_bytes(compiled.asm["cubin"])
            program = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
            command = [program, "-res-usage", file.name]
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text))
        registers, spilled = int(found["REG"]), int(found["STACK"]) + int(found["LOCAL"])
    return {"registers": registers, "spilled": spilled, "shared": compiled.metadata.shared}


def compile_all() -> Iterator[dict[str, Any]]:
    """Every different launch for every target."""
    for target in TARGETS:
        seen = set()
        for launch in record(target.precision):
            text, options = source(launch)
            key = f"{launch.kernel.__name__} {text.signature} {text.constants} {options}"
            if key in seen:
                continue
            seen.add(key)
            compiled = triton.compile(text, target=target.chip, options=options)
            named = {"kernel": launch.kernel.__name__, "target": target.name}
            yield named | read_usage(compiled, target)


if __name__ == "__main__":
    print(json.dumps(list(compile_all())))

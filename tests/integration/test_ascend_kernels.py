"""The kernels that an NPU gets: what they need is in torch_npu, and Ascend's torch computes them.

No NPU takes part: torch_npu's own list of operators is read, and the same code runs on the CPU.
`make engine-env STACK=ascend` first.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "build/engine-env/ascend/bin/python"


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}/server:{ROOT}/tests/support",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # torch_npu can't be loaded without CANN
    }
    program = ROOT / "tests" / "support" / "npu_contract.py"
    done = subprocess.run(
        [PYTHON, program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_torch_npu_implements_every_operator_that_needs_a_kernel(report: dict[str, Any]) -> None:
    assert report["listed"] > 1000
    assert {"bmm", "index_copy_", "linalg_solve_triangular"} <= set(report["needed"])
    assert report["missing"] == []


def test_ascends_torch_computes_what_the_reference_says(report: dict[str, Any]) -> None:
    assert report["torch"].startswith("2.9.0")
    assert report["error"] < 5e-5

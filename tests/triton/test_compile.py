"""Every kernel compiles for the chips we name, from the launches that our code makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]
KERNELS = {"_mix", "_keep", "_prepare", "_step", "_solve", "_carry", "_finish"}
TARGETS = ("cuda-80", "cuda-90", "hip-gfx942")
# What a program may take of a processor's fast memory: two fit beside each other on every target.
MOST_SHARED = {"cuda-80": 48 * 1024, "cuda-90": 48 * 1024, "hip-gfx942": 32 * 1024}


@pytest.fixture(scope="module")
def compiled() -> list[dict[str, Any]]:
    paths = [REPO / "server", REPO / "tests" / "support", os.environ["PYTHONPATH"]]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    del environment["TRITON_INTERPRET"]
    program = REPO / "tests" / "support" / "triton_targets.py"
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return json.loads(done.stdout)


@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_keeps_its_values_in_registers(
    target: str, compiled: list[dict[str, Any]]
) -> None:
    rows = [row for row in compiled if row["target"] == target]
    assert {row["kernel"] for row in rows} == KERNELS
    assert [row for row in rows if row["spilled"]] == []
    assert [row for row in rows if row["shared"] > MOST_SHARED[target]] == []

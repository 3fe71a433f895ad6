"""What is kept of runs on GPUs is what `tests/gpu/run` wrote, and the page says no more than it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEPT = sorted((ROOT / "tests" / "gpu" / "evidence").glob("*.json"))
PAGE = (ROOT / "docs" / "hardware.md").read_text()


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_it_is_whole_and_passed(file: Path) -> None:
    evidence = json.loads(file.read_text())
    digest = evidence.pop("sha256")
    assert digest == hashlib.sha256(json.dumps(evidence, sort_keys=True).encode()).hexdigest()
    assert evidence["passed"]
    assert evidence["machine"]["commit"]


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_the_pages_numbers_are_its_numbers(file: Path) -> None:
    assert f"`{file.relative_to(ROOT)}`" in PAGE
    results = json.loads(file.read_text())["results"]
    for size in ("0.1B", "1.5B"):
        rates = [r["tokens/s"] for r in results if f"without vLLM, {size}" in r.get("time", "")]
        cells = " | ".join(f"{rate:,}" for rate in rates)
        assert f"| {size}, recorded steps | {cells} |" in PAGE
    checks = [r for r in results if "ok" in r]
    assert f"{len(checks)} of {len(checks)} checks" in PAGE


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_what_did_not_run_is_said(file: Path) -> None:
    results = json.loads(file.read_text())["results"]
    if any(r.get("notRun") == "engine" for r in results):
        assert "**vLLM's engine has not run on any GPU or NPU**" in PAGE

"""The chart as tests see it: rendered by the real Helm, read back as objects."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

REPO = Path(__file__).resolve().parents[2]
CHART = REPO / "charts" / "rwkv-operator"


@dataclass(frozen=True)
class Helm:
    """A Helm program."""

    program: str

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run it; the exit code is the caller's business."""
        return subprocess.run([self.program, *args], capture_output=True, text=True)

    def render(self, *settings: str, release: str = "rwkv-operator") -> list[dict[str, Any]]:
        """The objects of `helm template` with these `--set` values."""
        flags = [flag for value in settings for flag in ("--set", value)]
        done = self.run("template", release, str(CHART), "--namespace", "rwkv-system", *flags)
        assert done.returncode == 0, done.stderr
        return [obj for obj in yaml.safe_load_all(done.stdout) if obj]

    def refusal(self, *settings: str) -> str:
        """What Helm says when it refuses these values."""
        flags = [flag for value in settings for flag in ("--set", value)]
        done = self.run("template", "rwkv-operator", str(CHART), *flags)
        assert done.returncode != 0, f"{settings} should have been refused"
        return done.stderr


@functools.cache
def find_helm() -> Helm:
    """The Helm that $HELM names, else the cluster's own; skips where neither is to be had."""
    if program := os.environ.get("HELM"):
        return Helm(program)
    path = os.pathsep.join([str(REPO / "tests" / "cluster"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "rwkv_cluster", "bin", "helm"]
    environ = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    if done.returncode:
        pytest.skip(f"Helm isn't there: {done.stderr.strip()[-200:]}")
    return Helm(done.stdout.strip())


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """The objects of one kind, by name."""
    return {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == kind}

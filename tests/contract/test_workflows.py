"""The GitHub workflows can't run here; what can be told without GitHub is tested."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from chart import REPO

WORKFLOWS = sorted((REPO / ".github" / "workflows").glob("*.yml"))


def steps(path: Any) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_make_targets_exist(path: Any) -> None:
    makefile = (REPO / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, flags=re.MULTILINE))
    for step in steps(path):
        if action := step.get("uses"):
            assert re.fullmatch(r"[\w./-]+@(v\d+(\.\d+)*|[0-9a-f]{40})", action), action
        for used in re.findall(r"\bmake ([a-z0-9-]+)", step.get("run", "")):
            assert used in targets


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_gets_no_rights_and_ends(path: Any) -> None:
    parsed = yaml.safe_load(path.read_text())
    assert parsed["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 90 for job in parsed["jobs"].values())


def test_there_are_workflows() -> None:
    assert WORKFLOWS

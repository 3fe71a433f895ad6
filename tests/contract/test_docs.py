"""The documentation speaks of what is there: links lead somewhere, the reasons are the code's."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rwkv_operator.api import conditions

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
REASONS_HEAD = "| condition | reason | meaning |\n|---|---|---|\n"
TARGETS = re.compile(r"^([a-z0-9-]+):.*## ", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())
    local = [link for link in links if "://" not in link]
    missing = [link for link in local if not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    known = set(TARGETS.findall((ROOT / "Makefile").read_text()))
    named = set(re.findall(r"`make ([a-z0-9-]+)", page.read_text()))
    assert named <= known


def test_every_file_of_the_component_table_exists() -> None:
    table = (ROOT / "docs" / "architecture.md").read_text().split("## Component → file")[1]
    for entry in re.findall(r"`([^`]*/[^`]*)`", table):
        braces = re.search(r"\{(.+)\}", entry)
        names = braces.group(1).split(",") if braces else [""]
        for name in names:
            path = entry.replace(braces.group(0), name) if braces else entry
            assert list(ROOT.glob(path)), f"{entry}: {path}"


def test_operations_lists_every_reason_of_every_condition() -> None:
    path = ROOT / "docs" / "operations.md"
    rows = [
        f"| {kind} | `{reason}` | {meaning} |"
        for kind, reasons in conditions.REASONS.items()
        for reason, meaning in reasons.items()
    ]
    head, begin, rest = path.read_text().partition(REASONS_HEAD)
    _, end, tail = rest.partition("\n\n")
    wanted = head + begin + "\n".join(rows) + end + tail
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(wanted)
    assert path.read_text() == wanted, "run `make golden` and read the diff"

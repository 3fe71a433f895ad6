"""Whole objects beside the tests that expect them, as YAML that a person can review.

`UPDATE_GOLDEN=1 pytest …` writes what the code makes now; the diff is what has to be judged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[1] / "golden"


def check(case: str, obj: Mapping[str, Any]) -> None:
    """Compare an object with its file `<case>/<kind>-<name>.yaml`."""
    path = FOLDER / case / f"{obj['kind'].lower()}-{obj['metadata']['name']}.yaml"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(dict(obj), sort_keys=False, width=100, allow_unicode=True))
    assert path.exists(), f"{path} is missing; write it with UPDATE_GOLDEN=1"
    expected = yaml.safe_load(path.read_text())
    assert obj == expected, f"{path} differs; if that is right, UPDATE_GOLDEN=1 writes it anew"


def check_all(case: str, objects: Iterable[Mapping[str, Any]]) -> None:
    """Compare each object with its file, and the files of the case with the objects."""
    made = set()
    for obj in objects:
        check(case, obj)
        made.add(f"{obj['kind'].lower()}-{obj['metadata']['name']}.yaml")
    left_over = {path.name for path in (FOLDER / case).glob("*.yaml")} - made
    assert not left_over, f"{case}: nothing makes {sorted(left_over)} any more; delete them"

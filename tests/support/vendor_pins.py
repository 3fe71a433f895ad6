"""The vendor's Ascend packages by their published metadata, and what our `[server]` asks for."""

from __future__ import annotations

from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "tests" / "contract" / "ascend-vendor-pins.txt"
# Beyond what the vendor's image has: pure additions, of no package's pin.
ADDED = {"obstore", "pyrwkv-tokenizer"}


def parse_pins(text: str) -> dict[str, Version]:
    """`name==version` lines by canonical name."""
    lines = [line.split(";")[0].strip() for line in text.splitlines()]
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def extra(name: str) -> dict[str, Requirement]:
    """The requirements of one of our extras, by canonical name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []
    parsed = map(Requirement, project["optional-dependencies"][name])
    return {canonicalize_name(requirement.name): requirement for requirement in parsed}


def operators_own() -> set[str]:
    """What only the operator needs."""
    return set(extra("operator")) - set(extra("server"))

"""Copy the CRDs and the stacks into the chart: Helm packs only what lies in the chart's folder.

`python charts/rwkv-operator/sync.py` writes the copies, `--check` only compares. The sources are
`crds/*.yaml` and `crds/stacks/*.yaml`; nothing is edited on the way.
"""

from __future__ import annotations

import sys
from pathlib import Path

CHART = Path(__file__).resolve().parent
REPO = CHART.parent.parent
FOLDERS = {REPO / "crds": CHART / "files" / "crds", REPO / "crds/stacks": CHART / "files/stacks"}


def find_differences() -> list[str]:
    """Names of copies that are missing, stale or left over."""
    found = []
    for source, target in FOLDERS.items():
        names = {path.name for folder in (source, target) for path in folder.glob("*.yaml")}
        for name in sorted(names):
            one, other = source / name, target / name
            if not (one.exists() and other.exists() and one.read_bytes() == other.read_bytes()):
                found.append(str(other.relative_to(REPO)))
    return found


def write_copies() -> None:
    """Make the chart's copies equal to their sources."""
    for source, target in FOLDERS.items():
        target.mkdir(parents=True, exist_ok=True)
        for old in target.glob("*.yaml"):
            old.unlink()
        for path in source.glob("*.yaml"):
            (target / path.name).write_bytes(path.read_bytes())


def main() -> None:
    """Write, or check and say what to do."""
    if "--check" not in sys.argv[1:]:
        write_copies()
    if differences := find_differences():
        listing = ", ".join(differences)
        raise SystemExit(f"stale copies: {listing}; run: python charts/rwkv-operator/sync.py")


if __name__ == "__main__":
    main()

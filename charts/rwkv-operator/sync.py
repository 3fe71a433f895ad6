"""Copy the CRDs and the stacks into the chart: Helm packs only what lies in the chart's folder.

`python charts/rwkv-operator/sync.py` writes the copies, `--check` only compares. The sources are
`crds/*.yaml`, `crds/stacks/*.yaml` and `crds/stacks/evidence/<stack>/evidence.json`, which becomes
`<stack>.evidence.json`; nothing is edited on the way.
"""

from __future__ import annotations

import sys
from pathlib import Path

CHART = Path(__file__).resolve().parent
REPO = CHART.parent.parent
FILES = CHART / "files"


def find_sources() -> dict[Path, Path]:
    """Each copy with its source."""
    crds = REPO / "crds"
    evidence = crds.glob("stacks/evidence/*/evidence.json")
    return {
        **{FILES / "crds" / path.name: path for path in crds.glob("*.yaml")},
        **{FILES / "stacks" / path.name: path for path in crds.glob("stacks/*.yaml")},
        **{FILES / "stacks" / f"{path.parent.name}.evidence.json": path for path in evidence},
    }


def find_differences() -> list[str]:
    """Names of copies that are missing, stale or left over."""
    sources = find_sources()
    copies = {path for path in FILES.rglob("*") if path.is_file()}
    return [
        str(path.relative_to(REPO))
        for path in sorted(copies | set(sources))
        if path not in copies
        or path not in sources
        or path.read_bytes() != sources[path].read_bytes()
    ]


def write_copies() -> None:
    """Make the chart's copies equal to their sources."""
    for old in [path for path in FILES.rglob("*") if path.is_file()]:
        old.unlink()
    for target, source in find_sources().items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())


def main() -> None:
    """Write, or check and say what to do."""
    if "--check" not in sys.argv[1:]:
        write_copies()
    if differences := find_differences():
        listing = ", ".join(differences)
        raise SystemExit(f"stale copies: {listing}; run: python charts/rwkv-operator/sync.py")


if __name__ == "__main__":
    main()

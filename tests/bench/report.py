"""Renders docs/performance.md from build/bench/*.json, so that the page cannot drift."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import engine_section
import results
import state_section
from cells import number, verdict

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
SECTIONS = {"engine": engine_section.lines, "state": state_section.lines}
HEAD = """# Performance

Rendered by `make bench` from the files that the benches write; nothing here is typed by hand.
Every peer was measured in the same run on the same machine, interleaved with ours. Compare ratios,
not times: the machine is small and shared. A ratio is ours over the peer's.
"""


def main() -> None:
    """Write the page."""
    files = sorted(results.DIRECTORY.glob("*.json"))
    if not files:
        raise SystemExit(f"no results in {results.DIRECTORY}; run a bench first")
    parts = [part_section(path.stem, json.loads(path.read_text())) for path in files]
    PAGE.write_text("\n".join([HEAD, *parts]))
    print(f"wrote {PAGE.relative_to(PAGE.parents[1])} from {len(files)} files")


def part_section(part: str, content: dict[str, Any]) -> str:
    """One bench as a table; goals have one of their own before it."""
    machine = content["machine"]
    lines = [
        f"## {part.capitalize()}",
        "",
        f"{content['date']}, {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, Python {machine['python']}. "
        f"Commands: {', '.join(f'`{command}`' for command in content.get('commands', []))}.",
        "",
        *(SECTIONS[part](content["rows"]) if part in SECTIONS else ()),
        "| row | value | peer | peer's value | ratio | better | runs | spread |",
        "|---|---|---|---|---|---|---|---|",
        *(table_line(row) for row in content["rows"]),
        "",
    ]
    return "\n".join(lines)


def table_line(row: dict[str, Any]) -> str:
    """One row of the table; a loss is marked as one."""
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}{verdict(row)}"
    peer_value = "" if row["peer_value"] is None else f"{number(row['peer_value'])} {row['unit']}"
    cells = [
        f"`{row['name']}`",
        f"{number(row['value'])} {row['unit']}",
        row["peer"] or "",
        peer_value,
        ratio,
        row["better"],
        str(row["runs"]),
        f"{row['spread']:.0%}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()

"""How docs/performance.md writes a number and a loss. Pure."""

from __future__ import annotations

from typing import Any


def verdict(row: dict[str, Any]) -> str:
    """' (loss)' where the peer is better."""
    lost = row["ratio"] < 1 if row["better"] == "higher" else row["ratio"] > 1
    return " (loss)" if lost else ""


def number(value: float) -> str:
    """Three significant digits without an exponent."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"

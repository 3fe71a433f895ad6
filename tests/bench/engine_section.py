"""What docs/performance.md says of the engine's bench beside its rows: method and goals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cells import number

NOTES = """\
0.1B shape, random weights, vLLM in one process, eager. `1t` is one thread on one core that all use
in turn, `2t` two. A step is everything from the scheduler to the chosen tokens, greedy, without
making text; llama.cpp (built for this CPU from the pinned source of llama-cpp-python) and PyPI
`rwkv` choose their tokens greedily too. `fp32`, `bf16`, `int8` and `int4` are held against
llama.cpp's f32, bf16, q8_0 and q4_0, and our bf16 against `rwkv` in its faster dtype. A value is
the median of the rounds; the best round is what the machine can do when nobody disturbs it."""


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """How it was measured, then the goals with what was reached; empty lines after both."""
    goals = [goal_line(row) for row in rows if row["must"] is not None]
    head = [
        "| goal | ours | against | ratio | of best rounds | must | aim | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return [NOTES, "", *head, *goals, "", *profile({row["name"]: row for row in rows})]


def profile(rows: Mapping[str, dict[str, Any]]) -> list[str]:
    """Where a step at batch 1 goes and what it can't do without: why an aim on it is missed."""
    parts = {
        "layers": "step_ms/layers/1t",
        "head": "step_ms/head/1t",
        "rest": "step_overhead_ms/1t",
    }
    if "floor_b1/bf16/1t" not in rows or not set(parts.values()) <= rows.keys():
        return []
    spent = {part: rows[name]["value"] for part, name in parts.items()}
    floor = 1e3 / rows["floor_b1/bf16/1t"]["peer_value"]
    return [
        f"A greedy step at batch 1 (bf16, one thread) takes {number(sum(spent.values()))} ms: "
        f"{number(spent['layers'])} in the layers, {number(spent['head'])} in the head, "
        f"{number(spent['rest'])} in vLLM's scheduler, runner, sampler and output. Reading the "
        f"weights once, doing nothing else, takes {number(floor)} ms here.",
        "",
    ]


def goal_line(row: dict[str, Any]) -> str:
    """One goal; what is missed is said."""
    has_peer = row["ratio"] is not None
    against = f"{row['peer']}: {number(row['peer_value'])}" if has_peer else ""
    sign = "≥" if row["better"] == "higher" else "≤"
    cells = [
        f"`{row['name']}`",
        f"{number(row['value'])} {row['unit']}",
        against,
        f"{row['ratio']:.2f}" if has_peer else "",
        f"{row['best_ratio']:.2f}" if has_peer else "",
        f"{sign} {number(row['must'])}",
        f"{sign} {number(row['aim'])}",
        outcome(row),
    ]
    return f"| {' | '.join(cells)} |"


def outcome(row: dict[str, Any]) -> str:
    """'aim met', 'must met, aim missed by …' or '**must missed by …**'."""
    reached = row["ratio"] if row["judged"] == "ratio" else row["value"]
    if shortfall(reached, row["aim"], row["better"]) <= 0:
        return "aim met"
    missed = shortfall(reached, row["must"], row["better"])
    if missed <= 0:
        return f"must met, aim missed by {shortfall(reached, row['aim'], row['better']):.0%}"
    return f"**must missed by {missed:.0%}**"


def shortfall(reached: float, goal: float, better: str) -> float:
    """The part of the goal that is missing, or that is too much where less is better."""
    return 1 - reached / goal if better == "higher" else reached / goal - 1

"""What docs/performance.md says of the states' bench beside its rows: method and goals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cells import number

NOTES = """\
0.1B shape, bf16, random weights, one served engine over HTTP, the store a volume with fsync;
without it, a store in memory. Saving and going on are what such a turn takes beyond a plain one
with as many new tokens, in the same rounds; memory holds nine snapshots, so that others come from
the store. The 64 requests all end in the same step, after which their snapshots go to the store;
beside them stands what the same disk takes for as many bare files of that size. The chat has 100
turns of about 60 tokens that a stock client resends whole, `maxModelLen` 4096; it is held against
the same prompts read whole. The growth is of all the server's processes, with the bundled model.

`same_chat` is one such chat on three engines, turn by turn: ours with automatic reuse, vLLM's own
server with its prefix cache (`--enable-prefix-caching --block-size 16`, mode "align"), and ours
without reuse. vLLM's needs `--max-model-len` 16384, because the whole chat must fit it; ours keeps
to 4096. First words are medians of turns 91 to 100, over those of turns 2 to 11. Bytes are counted,
not measured: on either side the prompt of a turn leaves one whole state, ours at the end of its
last message, vLLM's at the end of the last whole block. vLLM's is lost with its engine."""

# Row → the most (or, for rates and shares, the least) that the goal allows; of ratios or of values.
GOALS: Mapping[str, tuple[str, float]] = {
    "save_durable/p50": ("value", 10),
    "save_without_fsync/p50": ("value", 6),
    "resume_hot/p50": ("value", 5),
    "resume_durable/p50": ("value", 12),
    "throughput_64/with_saves": ("ratio", 0.97),
    "ttft_turn100_over_turn2": ("value", 1.2),
    "reuse_hits_after_first_turn": ("value", 1),
}


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """How it was measured, then the goals with what was reached; empty lines after both."""
    found = {row["name"]: row for row in rows}
    goals = [goal_line(found[name]) for name in GOALS if name in found]
    return [NOTES, "", "| goal | reached | must | |", "|---|---|---|---|", *goals, ""]


def goal_line(row: dict[str, Any]) -> str:
    """One goal; what is missed is said."""
    judged, must = GOALS[row["name"]]
    higher = row["better"] == "higher"
    met = row[judged] >= must if higher else row[judged] <= must
    unit = f" {row['unit']}" if judged == "value" and row["unit"] else ""
    sign = "≥" if higher else "≤"
    cells = [
        f"`{row['name']}`",
        f"{number(row[judged])}{unit}",
        f"{sign} {number(must)}{unit}",
        "met" if met else "**missed**",
    ]
    return f"| {' | '.join(cells)} |"

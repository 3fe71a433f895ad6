"""The bench's pure parts: who meets whom, statistics, and what the page says of goals."""

from __future__ import annotations

from typing import Any

import engine_plan
import engine_rows
import engine_section
import pytest
import report
from engine_plan import Side

CELL = "decode_b1"


def rows(samples: dict[Side, list[float]]) -> dict[tuple[str, str | None], engine_rows.Row]:
    made = engine_rows.speed_rows({(CELL, side): values for side, values in samples.items()})
    return {(row.name, row.peer): row for row in made}


def test_each_format_meets_its_nearest_and_one_thread_never_meets_two() -> None:
    samples = {Side("ours", kind, 1): [10.0] for kind in engine_plan.LLAMA_KINDS}
    samples |= {Side("llama.cpp", kind, 2): [1.0] for kind in engine_plan.LLAMA_KINDS.values()}
    samples |= {Side("llama.cpp", "q8_0", 1): [5.0]}
    peers = {row.name: row.peer for row in rows(samples).values()}
    assert peers == {
        "decode_b1/fp32/1t": None,
        "decode_b1/bf16/1t": None,
        "decode_b1/int8/1t": "llama.cpp q8_0",
        "decode_b1/int4/1t": None,
    }


def test_rwkv_is_taken_in_the_dtype_that_is_faster() -> None:
    samples = {
        Side("ours", "bf16", 1): [90.0],
        Side("rwkv", "fp32", 1): [30.0, 31.0, 29.0],
        Side("rwkv", "bf16", 1): [90.0, 20.0, 20.0],
    }
    assert rows(samples)["decode_b1/bf16/1t", "rwkv fp32"].as_dict()["ratio"] == 3.0


def test_a_row_has_the_median_the_best_and_the_spread_of_both() -> None:
    samples = {
        Side("ours", "bf16", 1): [80.0, 100.0, 120.0],
        Side("llama.cpp", "bf16", 1): [40.0, 50.0, 100.0],
    }
    made = rows(samples)["decode_b1/bf16/1t", "llama.cpp bf16"].as_dict()
    assert (made["value"], made["peer_value"], made["ratio"]) == (100.0, 50.0, 2.0)
    assert (made["best"], made["peer_best"], made["best_ratio"]) == (120.0, 100.0, 1.2)
    assert made["spread"] == pytest.approx(0.4)
    assert (made["must"], made["aim"]) == (1.0, 1.25)


def test_the_best_of_times_is_the_least() -> None:
    made = engine_rows.row("step_overhead_ms/1t", [3.0, 1.0, 2.0], "ms", "lower")
    assert (made.value, made.best) == (2.0, 1.0)


def test_memory_of_a_session_is_the_slope_and_not_the_start() -> None:
    held = {32: 1000 + 32 * 5, 256: 1000 + 256 * 5}
    assert engine_rows.session_slope(held) == pytest.approx(5)


def test_every_goal_has_a_row_that_can_reach_it() -> None:
    speeds = {batch: [1.0] for batch in engine_plan.GROWTH_BATCHES}
    everyone = {
        (cell.name, side): [1.0]
        for cell in engine_plan.cells({1: 1, 8: 1, 32: 1})
        for threads in engine_plan.THREADS
        for side in engine_plan.sides(cell.name, threads, list(engine_plan.LLAMA_KINDS), [])
    }
    parts = {name: [1.0] for name in ("greedy", "floor", "sampled", "rest", "layers", "head")}
    made = [
        *engine_rows.speed_rows(everyone),
        *engine_rows.step_rows(parts),
        *engine_rows.growth_rows(speeds, {0: 0, 1: 5}, 5, {1: [1.0]}),
        *(engine_rows.row(name, [1.0], "", "lower") for name in engine_plan.SERVER_ROWS),
    ]
    assert len([row for row in made if row.must is not None]) == len(engine_plan.GOALS)
    names = [(row.name, row.peer) for row in made]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("patterns", "who"),
    [
        ([], ["ours", "llama.cpp", "rwkv", "rwkv"]),
        (["decode_b1/bf16/1t"], ["ours", "llama.cpp", "rwkv", "rwkv"]),
        (["decode_b1/*"], ["ours", "llama.cpp", "rwkv", "rwkv"]),
        (["decode_b8/*", "decode_b1/*/2t"], []),
    ],
)
def test_rows_asked_for_bring_their_peers(patterns: list[str], who: list[str]) -> None:
    assert [side.who for side in engine_plan.sides(CELL, 1, ["bf16"], patterns)] == who


def test_each_round_starts_with_another_side_and_has_all() -> None:
    sides = engine_plan.sides(CELL, 1, ["bf16"], [])
    firsts = [engine_plan.turns(sides, number)[0] for number in range(len(sides))]
    assert firsts == sides
    assert set(engine_plan.turns(sides, 7)) == set(sides)


def goal(value: float, peer: list[float] | None, better: str, by: str = "ratio") -> dict[str, Any]:
    against = engine_rows.Peer("p", "peer", peer) if peer else None
    made = engine_rows.row("x", [value], "ms", better, against).as_dict()
    return {**made, "must": 1.0, "aim": 1.25 if better == "higher" else 0.8, "judged": by}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (goal(25, [20.0], "higher"), "aim met"),
        (goal(20, [20.0], "higher"), "must met, aim missed by 20%"),
        (goal(9, [10.0], "higher"), "**must missed by 10%**"),
        (goal(8, [10.0], "lower"), "aim met"),
        (goal(12, [10.0], "lower"), "**must missed by 20%**"),
        (goal(0.9, None, "lower", "value"), "must met, aim missed by 12%"),
    ],
)
def test_a_missed_goal_is_said_with_how_much_is_missing(row: dict[str, Any], said: str) -> None:
    assert engine_section.outcome(row) == said


def test_the_page_shows_goals_losses_and_rows_without_a_peer() -> None:
    row = engine_rows.row(
        "decode_b1/int8/1t",
        [100.0],
        "tokens/s",
        "higher",
        engine_rows.Peer("llama.cpp", "llama.cpp q8_0", [125.0]),
    )
    machine = {"cpu": "c", "cores": 2, "memory_gib": 24, "kernel": "6", "python": "3.11"}
    plain = engine_rows.row("ttft_ms/1", [3.0], "ms", "lower")
    page = report.part_section(
        "engine",
        {"machine": machine, "date": "d", "rows": [row.as_dict(), plain.as_dict()]},
    )
    assert "| ≥ 1.1 | ≥ 1.3 | **must missed by 27%** |" in page
    assert "0.80 (loss)" in page
    assert "| `ttft_ms/1` | 3 ms |" in page


def test_the_page_says_where_a_step_goes() -> None:
    parts = {"greedy": [10.0], "floor": [5.0], "sampled": [11.0], "rest": [2.0]}
    made = engine_rows.step_rows({**parts, "layers": [6.0], "head": [2.5]})
    rows = {row.name: row.as_dict() for row in made}
    (text, _) = engine_section.profile(rows)
    assert "takes 10.5 ms: 6 in the layers, 2.5 in the head, 2 in vLLM's" in text
    assert "takes 5 ms here" in text
    assert engine_section.profile({}) == []

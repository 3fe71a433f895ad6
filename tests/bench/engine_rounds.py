"""Rounds of the engine's bench: everyone measures each cell, one after the other, several times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import engine_plan
import engine_rows
import engine_workers
from engine_peers import Peers
from engine_plan import Cell, Side
from engine_workers import Worker

BATCH_1 = Side("ours", "bf16", 1)
FLOOR = Side("memory", "read", 1)
BATCH_1_STEPS = 24
FLOOR_READS = 3
SAME_TOKENS = 8


@dataclass(frozen=True)
class Options:
    """What one run measures.

    Attributes:
        rounds: how often, beside a first one that only warms up.
        steps: decode steps of a cell in one round, by batch size.
        kinds: our formats of weights.
        patterns: names of the rows asked for; none asks for all.
    """

    rounds: int
    steps: Mapping[int, int]
    kinds: tuple[str, ...]
    patterns: tuple[str, ...]


def measure(options: Options, peers: Peers, threads: int) -> list[engine_rows.Row]:
    """All rows with so many threads."""
    plan = [
        (cell, sides)
        for cell in engine_plan.cells(options.steps)
        if (sides := engine_plan.sides(cell.name, threads, options.kinds, options.patterns))
    ]
    step = threads == 1 and engine_plan.any_wanted(engine_plan.STEP_ROWS, options.patterns)
    everyone = dict.fromkeys(side for _, sides in plan for side in sides)
    everyone |= dict.fromkeys((BATCH_1, FLOOR) if step else ())
    if not everyone:
        return []
    words = f"{threads} thread" + "s" * (threads > 1)
    engine_workers.say(f"{words}: starting {len(everyone)} workers")
    speeds: dict[tuple[str, Side], list[float]] = defaultdict(list)
    parts: dict[str, list[float]] = defaultdict(list)
    with engine_workers.running(list(everyone), peers) as workers:
        check_same_model(workers)
        for number in range(options.rounds + 1):
            speed = speed_round(plan, workers, number)
            part = step_round(workers, engine_workers.weight_bytes(peers)) if step else {}
            if number == 0:
                continue
            for key, value in speed.items():
                speeds[key].append(value)
            for name, value in part.items():
                parts[name].append(value)
            engine_workers.say(f"{words}: round {number} of {options.rounds}")
    return engine_rows.speed_rows(speeds) + (engine_rows.step_rows(parts) if parts else [])


def check_same_model(workers: Mapping[Side, Worker]) -> None:
    """Whoever computes in fp32 must answer alike, or it isn't the same model that is compared.

    Raises:
        RuntimeError: two of them differ in their first tokens.
    """
    exact = [side for side in workers if side.kind in ("fp32", "f32")]
    answers = {
        f"{side.who}/{side.kind}": workers[side].ask(f"decode 1 {SAME_TOKENS}")["tokens"]
        for side in exact
    }
    if len({tuple(tokens[:SAME_TOKENS]) for tokens in answers.values()}) > 1:
        raise RuntimeError(f"bench-engine: not the same model: {answers}")


def speed_round(
    plan: Sequence[tuple[Cell, Sequence[Side]]], workers: Mapping[Side, Worker], number: int
) -> dict[tuple[str, Side], float]:
    """One round of all cells, in tokens per second."""
    return {
        (cell.name, side): cell.tokens / workers[side].ask(cell.command)["seconds"]
        for cell, sides in plan
        for side in engine_plan.turns(sides, number)
    }


def step_round(workers: Mapping[Side, Worker], weights: int) -> dict[str, float]:
    """Milliseconds of a greedy step at batch 1, of a sampled one, of its parts and the floor."""
    worker, memory = workers[BATCH_1], workers[FLOOR]
    greedy = worker.ask(f"decode 1 {BATCH_1_STEPS}")["seconds"] / BATCH_1_STEPS
    sampled = worker.ask(f"sampled {BATCH_1_STEPS}")["seconds"] / BATCH_1_STEPS
    floor = min(memory.ask(f"read {weights}")["seconds"] for _ in range(FLOOR_READS))
    parts = worker.ask(f"split {BATCH_1_STEPS}")
    return {"greedy": greedy * 1e3, "sampled": sampled * 1e3, "floor": floor * 1e3, **parts}

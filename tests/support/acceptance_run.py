"""The scenario as a plain scheduler plays it, for tests of the acceptance without an engine."""

from __future__ import annotations

from rwkv_server.acceptance import scenario, verify
from rwkv_server.acceptance.trace import Segment, Step, digest


def play(budget: int = scenario.BUDGET) -> list[Step]:
    """First come, first served: running requests, then waiting ones, as long as tokens are left."""
    waiting = [(name, len(prompt)) for name, prompt in scenario.requests()]
    # As vLLM 0.32 does it: the slot that was given back last goes first. The warm-up had slot 1.
    free, used = [1, 2, 3, 4], {1}
    running: dict[str, list[int]] = {}  # request → prompt, computed, output, slot
    steps = []
    while waiting or running:
        left, step = budget, []
        while waiting and len(running) < scenario.SLOTS and _room(running, budget):
            name, length = waiting.pop(0)
            running[name] = [length, 0, 0, free.pop(0)]
        for name, (length, computed, output, slot) in running.items():
            query = min(length + output - computed, left)
            if query:
                new = computed == 0
                held = slot in used if new else None
                step.append(Segment(name, query, computed, slot, new, held, False if new else None))
                used.add(slot)
                left -= query
        for segment in step:
            state = running[segment.request]
            state[1] += segment.query
            state[2] += state[1] == state[0] + state[2]
            if state[2] == scenario.OUTPUT_TOKENS:
                free.insert(0, running.pop(segment.request)[3])
        steps.append(tuple(step))
    return steps


def _room(running: dict[str, list[int]], budget: int) -> bool:
    return sum(length + output - computed for length, computed, output, _ in running.values()) < (
        budget
    )


def answers() -> dict[str, list[int]]:
    return {name: [len(prompt), 7] for name, prompt in scenario.requests()}


def run(budget: int = scenario.BUDGET) -> verify.Run:
    return verify.Run(budget, digest(play(budget)), answers())

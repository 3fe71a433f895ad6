"""Plays a script of requests on an in-process engine, step by step.

What a server's clients do by chance is said here exactly: who arrives at which step, how many
tokens each step may have, who goes away, when all running requests are put back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from inproc_engine import Engine, greedy

MOST_STEPS = 10_000


@dataclass(frozen=True)
class Request:
    """One client.

    Attributes:
        prompt: its tokens.
        tokens: how many it wants.
        arrives: the step before which it comes.
        leaves: the step before which it goes away, if it does.
    """

    prompt: list[int]
    tokens: int
    arrives: int = 0
    leaves: int | None = None


@dataclass(frozen=True)
class Script:
    """What happens.

    Attributes:
        budgets: tokens that a step may have, over and over.
        preempted: the steps before which every running request loses its slot.
    """

    requests: Sequence[Request]
    budgets: Sequence[int] = (32,)
    preempted: Collection[int] = field(default_factory=frozenset)


def play(engine: Engine, script: Script) -> list[list[int] | None]:
    """The tokens that each request got; None for one that went away before its end."""
    core, usual = engine.llm.llm_engine, engine.budget
    got: dict[str, list[int]] = {}
    try:
        for step in range(MOST_STEPS):
            _come_and_go(engine, script, step)
            engine.budget = script.budgets[step % len(script.budgets)]
            for output in core.step() if core.has_unfinished_requests() else []:
                if output.finished and output.outputs[0].finish_reason != "abort":
                    got[output.request_id] = list(output.outputs[0].token_ids)
            waiting = any(request.arrives > step for request in script.requests)
            if not waiting and not core.has_unfinished_requests():
                return [got.get(f"r{index}") for index in range(len(script.requests))]
    finally:
        engine.budget = usual
    raise AssertionError(f"not done after {MOST_STEPS} steps")


def _come_and_go(engine: Engine, script: Script, step: int) -> None:
    core = engine.llm.llm_engine
    for index, request in enumerate(script.requests):
        if request.arrives == step:
            prompt = {"prompt_token_ids": request.prompt}
            core.add_request(f"r{index}", prompt, greedy(request.tokens))
        if request.leaves == step > request.arrives:
            core.abort_request([f"r{index}"])
    if step in script.preempted:
        engine.scheduler.reset_prefix_cache(reset_running_requests=True)

"""Whatever else an engine does meanwhile, a request's tokens are those it gets alone."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from batch_play import Script
    from inproc_engine import Answer, Engine
    from oracle import Oracle

LENGTHS = [1, 1, 2, 3, 15, 16, 17, 31, 33, 64, 90]
TOKENS = 20
DICE = random.Random(21)
PROMPTS = [[DICE.randrange(1, 256) for _ in range(length)] for length in LENGTHS]

# Derandomized: the same examples in every run, so that a failure is found again.
in_every_run = settings(max_examples=25, deadline=None, derandomize=True, database=None)
at_length = settings(max_examples=400, deadline=None, database=None)


@pytest.fixture(scope="module", params=["tiny", "tiny_torch"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Both ways to compute: the C++ library, and torch."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def alone(engine: Engine, tiny_oracles: list[Oracle]) -> list[Answer]:
    """Each prompt by itself on an engine that does nothing else, as both oracles say."""
    import oracle

    answers = [engine.generate([prompt], TOKENS)[0] for prompt in PROMPTS]
    oracle.check(tiny_oracles, PROMPTS, answers)
    return answers


@st.composite
def scripts(draw: st.DrawFn) -> tuple[list[int], Script]:
    """Requests that come, go, and are put back while steps of any size run."""
    import batch_play

    chosen = draw(st.lists(st.integers(0, len(PROMPTS) - 1), min_size=1, max_size=8))
    requests = []
    for index in chosen:
        arrives = draw(st.integers(0, 12))
        leaves = draw(st.none() | st.integers(arrives + 1, arrives + 12))
        tokens = draw(st.integers(1, TOKENS))
        requests.append(batch_play.Request(PROMPTS[index], tokens, arrives, leaves))
    budgets = draw(st.lists(st.integers(1, 64), min_size=1, max_size=5))
    preempted = draw(st.sets(st.integers(1, 25), max_size=3))
    return chosen, batch_play.Script(requests, budgets, preempted)


def check_script(engine: Engine, alone: list[Answer], case: tuple[list[int], Script]) -> None:
    import batch_play

    chosen, script = case
    engine.poison()
    played = batch_play.play(engine, script)
    for index, request, tokens in zip(chosen, script.requests, played, strict=True):
        if tokens is None:
            assert request.leaves is not None
        else:
            assert tokens == alone[index].tokens[: request.tokens]


@given(case=scripts())
@in_every_run
def test_any_batch(engine: Engine, alone: list[Answer], case: tuple[list[int], Script]) -> None:
    check_script(engine, alone, case)


@pytest.mark.long
@given(case=scripts())
@at_length
def test_any_batch_at_length(
    engine: Engine, alone: list[Answer], case: tuple[list[int], Script]
) -> None:
    check_script(engine, alone, case)


def test_preempted_again_and_again(engine: Engine, alone: list[Answer]) -> None:
    """While it reads its prompt, while it writes, and while others do either."""
    import batch_play

    requests = [batch_play.Request(prompt, TOKENS) for prompt in PROMPTS]
    for preempted in ({2}, {1, 2, 3, 9, 17}, range(4, 40, 6)):
        played = batch_play.play(engine, batch_play.Script(requests, (16,), frozenset(preempted)))
        assert played == [answer.tokens for answer in alone]


def final_state(engine: Engine, prompt: list[int], budgets: list[int]) -> list[torch.Tensor]:
    """Every state tensor of the one slot that a prompt was read into."""
    import batch_play

    engine.poison()
    batch_play.play(engine, batch_play.Script([batch_play.Request(prompt, 1)], budgets))
    kept = []
    for state in (state for layer in engine.states() for state in layer):
        (slot,) = (~torch.isnan(state).flatten(1).any(1)).nonzero().flatten().tolist()
        kept.append(state[slot].clone())
    return kept


@given(cuts=st.lists(st.integers(1, 64), min_size=1, max_size=6))
@in_every_run
def test_a_state_does_not_depend_on_how_its_prompt_was_cut(engine: Engine, cuts: list[int]) -> None:
    prompt = PROMPTS[LENGTHS.index(64)]
    whole, cut = final_state(engine, prompt, [64]), final_state(engine, prompt, cuts)
    # The C++ library adds up in the same order whatever the batch; torch's products don't.
    off = 1e-4 if engine.runs_on_torch else 0
    for one, other in zip(whole, cut, strict=True):
        torch.testing.assert_close(other, one, rtol=off, atol=off)

"""The engine against two independent implementations, fp32, greedy."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from inproc_engine import Engine
    from oracle import Oracle

LENGTHS = [1, 2, 1, 200, 31, 32, 33, 64, 3, 97, 180, 16, 47]
BUDGETS = [1, 2, 3, 7, 16, 31, 32, 64]


def random_prompts(vocabulary: int, seed: int, lengths: list[int]) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(1, vocabulary) for _ in range(n)] for n in lengths]


@pytest.fixture(scope="module", params=["tiny", "tiny_torch"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Both ways to compute: the C++ library, and torch."""
    return request.getfixturevalue(request.param)


def test_a_mixed_batch(engine: Engine, tiny_oracles: list[Oracle]) -> None:
    import oracle

    prompts = random_prompts(engine.config.vocab_size, 11, LENGTHS)
    oracle.check(tiny_oracles, prompts, engine.generate(prompts, max_tokens=64))


def test_a_mixed_batch_at_the_published_size(small: Engine, small_oracle: Oracle) -> None:
    import oracle

    prompts = random_prompts(65530, 11, [1, 2, 97, 33, 64, 3])
    oracle.check([small_oracle], prompts, small.generate(prompts, max_tokens=16))


@pytest.mark.parametrize("length", [1, 2, 511, 2000])
def test_a_prompt_alone(engine: Engine, tiny_oracles: list[Oracle], length: int) -> None:
    import oracle

    prompts = random_prompts(engine.config.vocab_size, length, [length])
    oracle.check(tiny_oracles, prompts, engine.generate(prompts, max_tokens=32))


@pytest.mark.parametrize("budget", BUDGETS)
def test_prompts_cut_by_a_budget_while_others_write(
    engine: Engine, tiny_oracles: list[Oracle], budget: int
) -> None:
    import oracle

    prompts = random_prompts(engine.config.vocab_size, 13, [1, 70, 33, 2, 65, 12])
    usual, engine.budget = engine.budget, budget
    try:
        answers = engine.generate(prompts, max_tokens=16)
    finally:
        engine.budget = usual
    oracle.check(tiny_oracles, prompts, answers)


@pytest.mark.long
@pytest.mark.parametrize("budget", BUDGETS)
def test_every_budget_at_the_published_size(
    small: Engine, small_oracle: Oracle, small_another: Oracle, budget: int
) -> None:
    import oracle

    prompts = random_prompts(65530, 14, [1, 2, 300, 97, 180, 31])
    usual, small.budget = small.budget, budget
    try:
        answers = small.generate(prompts, max_tokens=32)
    finally:
        small.budget = usual
    oracle.check([small_oracle, small_another], prompts, answers)


@pytest.mark.long
@pytest.mark.parametrize("length", [1, 1000, 2000])
def test_a_prompt_alone_at_the_published_size(
    small: Engine, small_oracle: Oracle, small_another: Oracle, length: int
) -> None:
    import oracle

    prompts = random_prompts(65530, length, [length])
    oracle.check([small_oracle, small_another], prompts, small.generate(prompts, max_tokens=32))

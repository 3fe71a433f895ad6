"""A model on several ranks says token for token what it says on one."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LENGTHS = [1, 2, 40, 33, 1, 97, 64, 3]
TOKENS = 32


@pytest.fixture(scope="module", params=["untied", "tied"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four heads and four layers, so that both can be halved."""
    import random_checkpoint

    shape = dataclasses.replace(
        random_checkpoint.TINY,
        hidden_size=256,
        num_hidden_layers=4,
        intermediate_size=1024,
        tie_word_embeddings=request.param == "tied",
    )
    folder = tmp_path_factory.mktemp("split") / request.param
    return random_checkpoint.write_checkpoint(folder, shape, seed=8)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    dice = random.Random(31)
    return [[dice.randrange(1, 320) for _ in range(n)] for n in LENGTHS]


@pytest.fixture(scope="module")
def wanted(model: Path, prompts: list[list[int]], kept: dict[str, Any]) -> list[list[int]]:
    """What one rank says, and another implementation with it."""
    import inproc_engine
    import oracle

    kept[str(model)] = inproc_engine.Engine(model)
    answers = kept[str(model)].generate(prompts, TOKENS)
    oracle.check([oracle.Another(model)], prompts, answers)
    return [answer.tokens for answer in answers]


@pytest.fixture
def check_ranks(
    model: Path, prompts: list[list[int]], wanted: list[list[int]], kept: dict[str, Any]
) -> Callable[[int, int], None]:
    import ranked_engine

    def check(tensor: int, pipeline: int) -> None:
        ranks = ranked_engine.Ranks(tensor, pipeline)
        with ranked_engine.start(model, ranks) as llm:
            kept[f"{model} {ranks}"] = llm
            assert ranked_engine.generate(llm, prompts, TOKENS) == wanted
            # The same slots again, in another order.
            assert ranked_engine.generate(llm, prompts[::-1], TOKENS) == wanted[::-1]

    return check


@pytest.mark.parametrize("model", ["untied"], indirect=True)
def test_heads_on_two_ranks(check_ranks: Callable[[int, int], None]) -> None:
    check_ranks(2, 1)


@pytest.mark.parametrize("model", ["tied"], indirect=True)
def test_layers_on_two_ranks_the_last_with_a_tied_head(
    check_ranks: Callable[[int, int], None],
) -> None:
    check_ranks(1, 2)


@pytest.mark.long
@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2), (2, 2)], ids=str)
def test_every_division(
    check_ranks: Callable[[int, int], None], tensor: int, pipeline: int
) -> None:
    check_ranks(tensor, pipeline)

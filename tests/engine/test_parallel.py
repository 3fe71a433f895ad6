"""A model on several ranks says token for token what it says on one."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

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
def wanted(model: Path, prompts: list[list[int]]) -> list[list[int]]:
    """What one rank says, and another implementation with it."""
    import inproc_engine
    import oracle

    answers = inproc_engine.Engine(model).generate(prompts, TOKENS)
    oracle.check([oracle.Another(model)], prompts, answers)
    return [answer.tokens for answer in answers]


def check_ranks(
    model: Path, prompts: list[list[int]], wanted: list[list[int]], tensor: int, pipeline: int
) -> None:
    import ranked_engine

    with ranked_engine.start(model, ranked_engine.Ranks(tensor, pipeline)) as llm:
        assert ranked_engine.generate(llm, prompts, TOKENS) == wanted
        # The same slots again, in another order.
        again = ranked_engine.generate(llm, prompts[::-1], TOKENS)
        assert again == wanted[::-1]


@pytest.mark.parametrize("model", ["untied"], indirect=True)
def test_heads_on_two_ranks(model: Path, prompts: list[list[int]], wanted: list[list[int]]) -> None:
    check_ranks(model, prompts, wanted, tensor=2, pipeline=1)


@pytest.mark.parametrize("model", ["tied"], indirect=True)
def test_layers_on_two_ranks_the_last_with_a_tied_head(
    model: Path, prompts: list[list[int]], wanted: list[list[int]]
) -> None:
    check_ranks(model, prompts, wanted, tensor=1, pipeline=2)


@pytest.mark.long
@pytest.mark.parametrize(("tensor", "pipeline"), [(2, 1), (1, 2), (2, 2)], ids=str)
def test_every_division(
    model: Path, prompts: list[list[int]], wanted: list[list[int]], tensor: int, pipeline: int
) -> None:
    check_ranks(model, prompts, wanted, tensor, pipeline)

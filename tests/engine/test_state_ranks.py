"""Ranks put their parts into one snapshot, which any number of ranks goes on from."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

TURN = 16


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four heads and four layers, so that both can be halved."""
    import random_checkpoint

    shape = dataclasses.replace(
        random_checkpoint.TINY, hidden_size=256, num_hidden_layers=4, intermediate_size=1024
    )
    return random_checkpoint.write_checkpoint(tmp_path_factory.mktemp("m") / "four", shape, seed=8)


@pytest.mark.parametrize(
    ("tensor", "pipeline"),
    [
        pytest.param(2, 1, id="heads"),
        pytest.param(1, 2, id="layers", marks=pytest.mark.long),
        pytest.param(2, 2, id="both", marks=pytest.mark.long),
    ],
)
def test_a_snapshot_of_several_ranks(
    model: Path, tmp_path: Path, kept: dict[str, Any], tensor: int, pipeline: int
) -> None:
    import ranked_engine
    import state_engine
    from state_engine import Ask

    dice = random.Random(17)
    prompt, new = ([dice.randrange(1, 250) for _ in range(n)] for n in (40, 5))
    alone_memory = state_engine.Memory.of(model, tmp_path)
    alone = state_engine.StateEngine.start(model, alone_memory)
    kept[f"{model} {tensor}"] = alone
    (whole,) = alone.plain([prompt], TURN)
    (on,) = alone.plain([prompt + whole + new], TURN)
    (one,) = alone.run(Ask(prompt, TURN, save=True, at_prompt=True))

    folder = tmp_path / "ranks"
    folder.mkdir()
    memory = state_engine.Memory.of(model, folder, ranks=tensor * pipeline)
    ranks = ranked_engine.Ranks(tensor, pipeline)
    with ranked_engine.start(model, ranks, memory.transfer_config) as llm:
        kept[f"{model} {ranks}"] = llm
        two = state_engine.StateEngine(llm, memory)
        (saved,) = two.run(Ask(prompt, TURN, save=True, at_prompt=True))
        assert saved.tokens == whole and saved.ended.saved and saved.ended.prompt_saved
        pending = whole[-1:] + new
        forks = [Ask(pending, TURN, load=saved.save), Ask(whole + new, TURN, load=saved.at_prompt)]
        assert [got.tokens for got in two.run(*forks)] == [on, on]
        # One rank's snapshot on all of them.
        slot = memory.slot()
        slot.view[:] = one.save.view
        (other,) = two.run(Ask(pending, TURN, load=slot))
        assert other.tokens == on
        gone = memory.give_away(slot)
        (failed,) = two.run(Ask(pending, TURN, load=slot))
        assert failed.reason == "error" and "somebody else" in failed.ended.failed
        assert two.plain([prompt], TURN) == [whole]
        memory.release(gone)
    # And the ranks' snapshot on one.
    slot = alone_memory.slot()
    slot.view[:] = saved.save.view
    (back,) = alone.run(Ask(pending, TURN, load=slot))
    assert back.tokens == on

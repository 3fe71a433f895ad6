"""Long dialogues that only ever send what is new say what one uninterrupted text would."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from state_engine import Got, StateEngine

TURNS = 24


def check_same(got: Got, wanted: Got) -> None:
    assert got.tokens == wanted.tokens
    assert got.logits is not None and wanted.logits is not None
    torch.testing.assert_close(got.logits, wanted.logits, rtol=0, atol=5e-4)
    likeness = torch.cosine_similarity(got.logits.double(), wanted.logits.double(), dim=1)
    assert likeness.min() >= 0.999999


@pytest.mark.parametrize("engine", ["states", "states_ahead"])
@pytest.mark.parametrize("seed", [1, 2])
def test_random_dialogues_with_forks_and_noise(
    request: pytest.FixtureRequest, engine: str, seed: int
) -> None:
    """Each turn goes on from the final state or from the prompt's, and sometimes from a fork."""
    from state_engine import Ask

    states: StateEngine = request.getfixturevalue(engine)
    dice, pinned = random.Random(seed), states.memory.hot.use.pinned

    def some(most: int) -> list[int]:
        return [dice.randrange(1, 256) for _ in range(dice.randint(1, most))]

    text: list[int] = []
    pending: list[int] = []
    state = None
    for _ in range(TURNS):
        new, room = some(50), dice.randint(1, 30)
        turn = Ask(pending + new, room, load=state, save=True, at_prompt=True)
        fork = Ask(pending + some(9), room, load=state)
        noise = [Ask(some(60), room) for _ in range(dice.randint(0, 3))]
        batch = [turn, fork, *noise]
        dice.shuffle(batch)
        got = dict(zip(map(id, batch), states.run(*batch), strict=True))
        told = text[: len(text) - len(pending)]
        plain = [told + list(ask.prompt) for ask in (turn, fork)]
        whole, beside = states.run(*(Ask(prompt, room) for prompt in plain))
        check_same(got[id(turn)], whole)
        check_same(got[id(fork)], beside)

        mine = got[id(turn)]
        text += new + mine.tokens
        from_end = dice.random() < 0.5
        kept, other = (mine.save, mine.at_prompt)[:: 1 if from_end else -1]
        pending = mine.ended.tokens[mine.ended.consumed :] if from_end else mine.tokens
        states.memory.release(state, other)
        state = kept
    states.memory.release(state)
    assert states.memory.hot.use.pinned == pinned

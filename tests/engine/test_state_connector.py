"""A state that went through a slot goes on as if nothing had been: token for token, at fp32."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from state_engine import StateEngine

TURN = 24


@pytest.fixture(scope="module")
def states(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> StateEngine:
    import state_engine

    layout = state_engine.layout_of(tiny_model)
    memory = state_engine.Memory(tmp_path_factory.mktemp("s"), layout)
    return state_engine.StateEngine(tiny_model, memory)


def a_prompt(length: int, seed: int = 1) -> list[int]:
    dice = random.Random(seed * 1000 + length)
    return [dice.randrange(1, 256) for _ in range(length)]


def test_a_resumed_state_goes_on_as_if_uninterrupted(states: StateEngine) -> None:
    from state_engine import Ask

    prompt = a_prompt(40)
    (whole,) = states.plain([prompt], 2 * TURN)
    (first,) = states.run(Ask(prompt, TURN, save=True))
    assert first.tokens == whole[:TURN]
    assert first.ended.status == "length_capped" and first.ended.saved
    assert first.ended.tokens == prompt + first.tokens
    assert first.ended.consumed == len(prompt) + TURN - 1
    (second,) = states.run(Ask(first.tokens[-1:], TURN, load=first.save))
    assert second.tokens == whole[TURN:]

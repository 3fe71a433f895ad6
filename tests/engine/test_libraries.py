"""A whole model on every C++ library that this machine can run, with one thread and with more."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from rwkv_server.kernels import cpu_library

if TYPE_CHECKING:
    from inproc_engine import Engine
    from oracle import Oracle

DICE = random.Random(51)
PROMPTS = [[DICE.randrange(1, 256) for _ in range(length)] for length in (1, 2, 33, 150)]


@pytest.fixture(params=cpu_library.find_libraries(), ids=lambda library: library.name)
def library(request: pytest.FixtureRequest) -> cpu_library.Library:
    return request.param


@pytest.fixture
def stack(tiny: Engine, library: cpu_library.Library, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stack of an engine that runs on this library for one test."""
    found = tiny.runner.model.model.blocks[0].stack
    monkeypatch.setattr(found, "_library", library)
    monkeypatch.setattr(found, "_engine", library.open_engine(found.model, 1))
    return found


def test_answers_are_right_and_the_same_bits_with_any_number_of_threads(
    tiny: Engine, tiny_oracles: list[Oracle], stack: Any, library: cpu_library.Library
) -> None:
    import oracle

    alone = tiny.generate(PROMPTS, max_tokens=24)
    oracle.check(tiny_oracles, PROMPTS, alone)
    for threads in (2, 5):
        stack._engine = library.open_engine(stack.model, threads)
        for answer, wanted in zip(tiny.generate(PROMPTS, max_tokens=24), alone, strict=True):
            assert answer.logits.equal(wanted.logits)


def test_what_is_no_number_inside_a_layer_is_not_hidden(tiny: Engine, stack: Any) -> None:
    for weight in (stack.blocks[1].ffn.key.weight, stack.blocks[1].attn.a_lora.lora[2].weight):
        before = weight[0, 0].item()
        weight.data[0, 0] = float("nan")
        try:
            (answer,) = tiny.generate(PROMPTS[2:3], max_tokens=1)
        finally:
            weight.data[0, 0] = before
        assert answer.logits.isnan().all()

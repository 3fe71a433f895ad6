"""The two half types on the bundled model: what they cost in answers, and in numbers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tiny_recall import evaluate, probes

if TYPE_CHECKING:
    from pathlib import Path

    from inproc_engine import Engine
    from oracle import Oracle

SEED = 2027
LENGTHS = [1, 2, 31, 64, 180, 400]
# Least cosine to the fp32 logits at any of 32 greedy tokens; bfloat16 has 8 bits of mantissa,
# float16 has 11.
COSINES = {"bfloat16": 0.999, "float16": 0.99998}


@pytest.fixture(params=COSINES)
def half(
    request: pytest.FixtureRequest, tiny_model: Path, kept: dict[str, Any]
) -> tuple[str, Engine]:
    import inproc_engine

    dtype = request.param
    if dtype not in kept:
        kept[dtype] = inproc_engine.Engine(tiny_model, slots=32, budget=2048, dtype=dtype)
    return dtype, kept[dtype]


def recall(llm: object, count: int) -> float:
    import recall_chats

    asked = probes.build_probes(SEED, count)
    return evaluate.share(asked, recall_chats.ask(llm, [probe.messages for probe in asked]))


def test_logits_stay_close_to_fp32(half: tuple[str, Engine], tiny_oracle: Oracle) -> None:
    dtype, engine = half
    dice = random.Random(41)
    prompts = [[dice.randrange(1, engine.config.vocab_size) for _ in range(n)] for n in LENGTHS]
    answers = engine.generate(prompts, max_tokens=32)
    verdicts = [
        tiny_oracle.judge(prompt, answer.tokens, answer.logits.float())
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    print(f"{dtype}: 1 - least cosine = {1 - min(v.cosine for v in verdicts):.1e}")
    assert min(v.cosine for v in verdicts) >= COSINES[dtype], verdicts


def test_it_recalls_as_well_as_fp32(half: tuple[str, Engine], recall_engine: object) -> None:
    dtype, engine = half
    exact, found = recall(recall_engine, 200), recall(engine.llm, 200)
    print(f"{dtype}: recall {found:.1%}, fp32 {exact:.1%}")
    assert abs(found - exact) <= 0.01


def test_logits_have_the_same_bits_in_any_batch_and_with_any_budget(
    half: tuple[str, Engine],
) -> None:
    _, engine = half
    assert not engine.runs_on_torch
    dice = random.Random(43)
    prompts = [[dice.randrange(1, engine.config.vocab_size) for _ in range(n)] for n in LENGTHS]
    alone = [engine.generate([prompt], max_tokens=24)[0] for prompt in prompts]
    for budget in (2048, 3, 7, 64, 100):
        engine.budget = budget
        for count in range(2, len(prompts) + 1):
            together = engine.generate(prompts[-count:], max_tokens=24)
            for answer, wanted in zip(together, alone[-count:], strict=True):
                assert answer.tokens == wanted.tokens
                assert answer.logits.equal(wanted.logits)
    engine.budget = 2048


@pytest.mark.long
def test_it_recalls_as_well_over_a_thousand_questions(
    half: tuple[str, Engine], recall_engine: object
) -> None:
    assert abs(recall(half[1].llm, 1000) - recall(recall_engine, 1000)) <= 0.01

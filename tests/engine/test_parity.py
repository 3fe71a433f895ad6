"""The engine against the official implementation, fp32, greedy."""

from __future__ import annotations

import random

import pytest

LENGTHS = [1, 2, 1, 200, 31, 32, 33, 64, 3, 97, 180, 16, 47]
COSINE = 0.999999


def random_prompts(vocabulary: int, seed: int) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(1, vocabulary) for _ in range(n)] for n in LENGTHS]


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_a_mixed_batch_agrees_with_the_official_model(
    size: str, request: pytest.FixtureRequest
) -> None:
    engine = request.getfixturevalue(size)
    prompts = random_prompts(min(engine.config.vocab_size, 65530), seed=11)
    answers = engine.generate(prompts, max_tokens=64)
    judge = request.getfixturevalue(f"{size}_oracle").judge
    verdicts = [
        judge(prompt, answer.tokens, answer.logits)
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    print(f"{size}: 1 - least cosine = {1 - min(v.cosine for v in verdicts):.1e}")
    assert [v.agreed for v in verdicts] == [64] * len(prompts)
    assert min(v.cosine for v in verdicts) >= COSINE

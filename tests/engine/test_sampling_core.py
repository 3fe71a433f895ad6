"""The pure part of sampling, against a sort, RWKV's own sampler and vLLM's penalties."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rwkv_server.sampling.choice import Choice, Penalties, check_seed, read_decay
from rwkv_server.sampling.decay import give_back
from rwkv_server.sampling.draw import draw_token
from rwkv_server.sampling.random_bits import uniforms
from rwkv_server.sampling.seen_tokens import SeenTokens

# Closer to top_p than this, two right sums may disagree.
EDGE = 1e-6

LOGITS = st.lists(st.integers(-40, 40), min_size=1, max_size=600).map(
    lambda values: torch.tensor(values, dtype=torch.float32) / 4
)


def allowed_by_sorting(logits: torch.Tensor, choice: Choice) -> tuple[torch.Tensor, set[int]]:
    """Probabilities after min_p and top_k, and the nucleus of them; ties stay together."""
    weights = (logits.double() / choice.temperature).softmax(-1)
    weights = weights.where(weights >= choice.min_p * weights.max() * (1 - 1e-9), 0.0)
    if choice.top_k:
        weights = weights.where(
            weights >= weights.sort(descending=True).values[choice.top_k - 1], 0
        )
    weights = weights / weights.sum()
    ordered, ids = weights.sort(descending=True)
    before = ordered.cumsum(0) - ordered
    likelier = {float(w): float(b) for w, b in reversed(list(zip(ordered, before, strict=True)))}
    kept = [float(w) > 0 and likelier[float(w)] < choice.top_p for w in ordered]
    return weights, {int(i) for i, keep in zip(ids, kept, strict=True) if keep}


def first_uniform(weights: torch.Tensor, token: int) -> float:
    """The number that makes the first round hit `token`."""
    return float(weights[:token].sum() + weights[token] / 2)


@given(
    logits=LOGITS,
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_p=st.floats(0.01, 1.0),
    top_k=st.sampled_from([0, 1, 3, 50]),
    min_p=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_exactly_the_nucleus_can_be_drawn(
    logits: torch.Tensor, temperature: float, top_p: float, top_k: int, min_p: float, seed: int
) -> None:
    choice = Choice(temperature, top_p, min(top_k, len(logits)), min_p)
    weights, kept = allowed_by_sorting(logits, choice)
    for token in random.Random(seed).sample(range(len(logits)), min(40, len(logits))):
        if weights[token] < 1e-9:
            continue
        edge = abs(float(weights[weights > weights[token]].sum()) - top_p) < EDGE
        numbers = itertools.chain([first_uniform(weights, token)], uniforms(seed, token))
        drawn = draw_token(logits, choice, numbers)
        assert edge or (drawn == token) == (token in kept)
        assert edge or drawn in kept


def test_draws_are_spread_as_the_nucleus_is() -> None:
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(1)) * 3
    choice = Choice(temperature=0.8, top_p=0.6)
    weights, kept = allowed_by_sorting(logits, choice)
    rounds = 4000
    drawn = Counter(draw_token(logits, choice, uniforms(5, i)) for i in range(rounds))
    assert set(drawn) <= kept
    mass = float(sum(weights[token] for token in kept))
    wanted = {token: rounds * float(weights[token]) / mass for token in kept}
    surprise = sum((drawn[token] - want) ** 2 / want for token, want in wanted.items())
    # Chi-squared with len(kept) - 1 degrees of freedom: mean n, deviation sqrt(2 n).
    assert surprise < len(kept) + 4 * math.sqrt(2 * len(kept))


@pytest.mark.parametrize("size", [1, 7, 320, 65536])
def test_masked_tokens_are_never_drawn(size: int) -> None:
    logits = torch.full((size,), -math.inf)
    logits[size // 2] = 3.0
    for temperature, top_p in itertools.product((1.0, 1e300, math.inf), (0.5, 1.0)):
        for seed in range(20):
            choice = Choice(temperature, top_p)
            assert draw_token(logits, choice, uniforms(seed, 0)) == size // 2


@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_nothing_to_draw_from(value: float) -> None:
    assert draw_token(torch.full((320,), value), Choice(1.0, 0.5), uniforms(1, 1)) is None


def test_random_numbers_depend_on_each_argument_and_fill_the_interval() -> None:
    numbers = [
        next(itertools.islice(uniforms(seed, position), attempt, None))
        for seed in (-1, 0, 1, 2**62)
        for position in range(40)
        for attempt in range(10)
    ]
    assert len(set(numbers)) == len(numbers)
    assert 0 < min(numbers) < 0.01 and 0.99 < max(numbers) < 1
    bins = Counter(int(number * 10) for number in numbers)
    assert max(bins.values()) < 1.3 * min(bins.values())


def words_of_rwkv(penalties: Penalties, tokens: list[int], logits: torch.Tensor) -> list:
    """The logits that RWKV's own sampler chooses each token of `tokens` from."""
    from rwkv.utils import PIPELINE, PIPELINE_ARGS

    pipeline = PIPELINE.__new__(PIPELINE)
    pipeline.model = SimpleNamespace(forward=lambda tokens, state: (logits.clone(), state))
    # No letter is a digit or a blank, which RWKV's sampler doesn't count.
    pipeline.encode, pipeline.decode = lambda text: [0], lambda ids: "x"
    seen: list[torch.Tensor] = []
    script = iter(tokens)

    def choose(out: torch.Tensor, **_: float) -> int:
        seen.append(out.clone())
        return next(script)

    pipeline.sample_logits = choose
    args = PIPELINE_ARGS(
        alpha_presence=penalties.presence,
        alpha_frequency=penalties.frequency,
        alpha_decay=penalties.decay,
    )
    pipeline.generate("x", token_count=len(tokens), args=args)
    return seen


@pytest.mark.parametrize("decay", [1.0, 0.996, 0.5, 0.0])
def test_penalties_are_those_of_rwkvs_own_sampler(decay: float) -> None:
    dice = random.Random(3)
    tokens = [min(int(dice.expovariate(0.05)), 299) for _ in range(200)]
    logits = torch.randn(300, generator=torch.Generator().manual_seed(2))
    penalties = Penalties(presence=0.5, frequency=0.4, decay=decay)
    seen = SeenTokens(penalties, [1, 2, 3])
    for step, wanted in enumerate(words_of_rwkv(penalties, tokens, logits)):
        row = logits.clone()
        seen.penalize(row, tokens[:step])
        torch.testing.assert_close(row, wanted, rtol=0, atol=1e-4)


def test_without_decay_penalties_are_vllms() -> None:
    from vllm.v1.sample.ops.penalties import apply_all_penalties

    dice = random.Random(4)
    prompts = [[dice.randrange(300) for _ in range(50)] for _ in range(3)]
    answers = [[dice.randrange(40) for _ in range(n)] for n in (0, 30, 90)]
    logits = torch.randn(3, 300, generator=torch.Generator().manual_seed(2))
    wanted = apply_all_penalties(
        logits.clone(),
        torch.tensor(prompts),
        torch.full((3,), 0.5),
        torch.full((3,), -0.3),
        torch.full((3,), 1.4),
        answers,
    )
    for row, prompt, answer, want in zip(logits, prompts, answers, wanted, strict=True):
        SeenTokens(Penalties(0.5, -0.3, 1.4), prompt).penalize(row, answer)
        torch.testing.assert_close(row, want)


def test_a_resumed_request_is_penalized_as_if_it_had_gone_on() -> None:
    dice = random.Random(5)
    answer = [dice.randrange(50) for _ in range(150)]
    penalties = Penalties(presence=0.2, frequency=0.7, decay=0.99)
    going_on, resumed = SeenTokens(penalties, []), SeenTokens(penalties, [])
    for step in range(len(answer)):
        going_on.penalize(torch.zeros(50), answer[:step])
    rows = torch.zeros(50), torch.zeros(50)
    going_on.penalize(rows[0], answer)
    resumed.penalize(rows[1], answer)
    assert rows[0].equal(rows[1])


@given(
    answers=st.lists(st.lists(st.integers(0, 29), max_size=40), min_size=1, max_size=4),
    # vLLM's CPU worker, which may run in this process, flushes subnormal numbers to zero.
    decay=st.floats(0, 1, allow_subnormal=False),
    frequency=st.floats(-2, 2, allow_subnormal=False),
)
@settings(max_examples=50, deadline=None)
def test_what_is_given_back_makes_full_penalties_decayed_ones(
    answers: list[list[int]], decay: float, frequency: float
) -> None:
    longest = max(len(answer) for answer in answers)
    tokens = torch.zeros(len(answers), longest, dtype=torch.int64)
    ages = torch.full_like(tokens, -1)
    logits, wanted = torch.zeros(len(answers), 30), torch.zeros(len(answers), 30)
    for row, answer in enumerate(answers):
        tokens[row, : len(answer)] = torch.tensor(answer, dtype=torch.int64)
        ages[row, : len(answer)] = torch.arange(len(answer)).flip(0)
        SeenTokens(Penalties(0.5, frequency), []).penalize(logits[row], answer)
        SeenTokens(Penalties(0.5, frequency, decay=decay), []).penalize(wanted[row], answer)
    rates = torch.full((len(answers),), decay), torch.full((len(answers),), frequency)
    give_back(logits, tokens, ages, *rates)
    torch.testing.assert_close(logits, wanted, rtol=0, atol=2e-4)


@pytest.mark.parametrize("value", [-0.1, 1.1, "0.9", True, [0.9], math.nan, math.inf])
def test_a_decay_that_makes_no_sense(value: object) -> None:
    with pytest.raises(ValueError, match=r"vllm_xargs\.penalty_decay must be a number from 0 to 1"):
        read_decay({"penalty_decay": value})


def test_seeds_that_have_no_room_for_all_answers() -> None:
    for seed, answers in ((None, 128), (-(2**63), 2), (2**63 - 1, 1), (2**63 - 2, 2)):
        check_seed(seed, answers)
    wanted = rf"seed must be at most {2**63 - 2} with n=2, got {2**63 - 1}\."
    with pytest.raises(ValueError, match=wanted):
        check_seed(2**63 - 1, 2)


def test_decays_that_make_sense() -> None:
    assert [read_decay({"penalty_decay": value}) for value in (0, 0.996, 1)] == [0, 0.996, 1]
    assert read_decay(None) == read_decay({"other": 2}) == 1

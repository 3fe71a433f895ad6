"""State slots: whoever had one before, the next request starts from zero."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import torch

from rwkv_server.model import state_layout

if TYPE_CHECKING:
    from inproc_engine import Answer, Engine

LENGTHS = [1, 40, 1, 3, 90, 32, 1, 17]
TOKENS = 24


@pytest.fixture(scope="module")
def prompts(tiny: Engine) -> list[list[int]]:
    dice = random.Random(5)
    return [[dice.randrange(1, 256) for _ in range(n)] for n in LENGTHS]


@pytest.fixture(scope="module")
def alone(tiny: Engine, prompts: list[list[int]]) -> list[Answer]:
    """Each prompt served by itself, one after the other, on clean slots."""
    for layer in tiny.states():
        for state in layer:
            state.zero_()
    return [tiny.generate([prompt], TOKENS)[0] for prompt in prompts]


def check_same(answers: list[Answer], wanted: list[Answer]) -> None:
    assert [a.tokens for a in answers] == [w.tokens for w in wanted]
    for answer, want in zip(answers, wanted, strict=True):
        torch.testing.assert_close(answer.logits, want.logits, rtol=0, atol=1e-3)


def test_a_batch_on_poisoned_slots_answers_as_if_each_were_alone(
    tiny: Engine, prompts: list[list[int]], alone: list[Answer]
) -> None:
    tiny.poison()
    check_same(tiny.generate(prompts, TOKENS), alone)
    check_same(tiny.generate(prompts[::-1], TOKENS), alone[::-1])


def test_one_after_the_other_on_slots_that_a_batch_left_behind(
    tiny: Engine, prompts: list[list[int]], alone: list[Answer]
) -> None:
    tiny.generate(prompts, TOKENS)
    check_same([tiny.generate([prompt], TOKENS)[0] for prompt in prompts], alone)


def test_a_cancelled_request_leaves_no_trace(
    tiny: Engine, prompts: list[list[int]], alone: list[Answer]
) -> None:
    from inproc_engine import greedy

    engine = tiny.llm.llm_engine
    for index, prompt in enumerate(prompts):
        engine.add_request(f"c{index}", {"prompt_token_ids": prompt}, greedy(TOKENS))
    for _ in range(3):
        engine.step()
    # One is still reading its prompt, one is writing, one waits for a slot.
    cancelled = {"c1", "c2", "c7"}
    engine.abort_request(sorted(cancelled))
    done = {}
    while engine.has_unfinished_requests():
        done |= {o.request_id: o for o in engine.step() if o.finished}
    kept = [i for i in range(len(prompts)) if f"c{i}" not in cancelled]
    assert done.keys() - cancelled == {f"c{i}" for i in kept}
    for index in kept:
        assert list(done[f"c{index}"].outputs[0].token_ids) == alone[index].tokens
    check_same(tiny.generate(prompts, TOKENS), alone)


def test_untouched_slots_keep_their_content(tiny: Engine, prompts: list[list[int]]) -> None:
    """One request writes one slot in each layer; every other slot keeps its NaN."""
    tiny.poison()
    tiny.generate(prompts[1:2], 4)
    for layer in tiny.states():
        clean = [~torch.isnan(state).flatten(1).any(1) for state in layer]
        assert [int(c.sum()) for c in clean] == [1, 1, 1]
        assert clean[0].equal(clean[1]) and clean[1].equal(clean[2])


@pytest.mark.parametrize("size", ["tiny", "small"])
def test_the_cache_is_what_the_layout_says(size: str, request: pytest.FixtureRequest) -> None:
    engine: Engine = request.getfixturevalue(size)
    config = engine.runner.kv_cache_config
    assert config.num_blocks == engine.slots + 1
    (group,) = config.kv_cache_groups
    assert group.kv_cache_spec.page_size_bytes == state_layout.layer_bytes(engine.config, "float32")
    wanted = state_layout.layer_state(engine.config, "float32")
    for layer in engine.states():
        found = [(tuple(s.shape[1:]), str(s.dtype), s[0].nbytes) for s in layer]
        assert found == [(t.shape, f"torch.{t.dtype}", t.nbytes) for t in wanted]
    storage = {s.untyped_storage().data_ptr(): s.untyped_storage() for s in engine.states()[0]}
    assert len(storage) == 1, "the three states of a layer share its pages"

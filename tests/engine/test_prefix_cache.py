"""vLLM's own prefix cache, where somebody runs our model without states: right, or refused.

The product never turns it on; `test_plugin` has what is refused.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from inproc_engine import Engine

BLOCK = 32
TOKENS = 12
CHATS, TURNS = 4, 5
pytestmark = pytest.mark.long


@pytest.fixture
def cached(tiny_model: Path, kept: dict[str, Any]) -> Engine:
    """An engine with an empty cache of few blocks."""
    import inproc_engine

    from rwkv_server import vllm_compat

    if not vllm_compat.COPIES_STATES:
        pytest.skip("this vLLM's prefix cache isn't for our model")
    if "prefix cache" not in kept:
        kept["prefix cache"] = inproc_engine.Engine(
            tiny_model, enable_prefix_caching=True, block_size=BLOCK, num_gpu_blocks_override=25
        )
    engine: Engine = kept["prefix cache"]
    assert engine.llm.reset_prefix_cache()
    return engine


def ask(engine: Engine, prompts: list[list[int]]) -> tuple[list[list[int]], list[int]]:
    """Each prompt's tokens, and how many of the prompt were not read."""
    import inproc_engine

    inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
    done = engine.llm.generate(inputs, inproc_engine.greedy(TOKENS), use_tqdm=False)
    return [list(one.outputs[0].token_ids) for one in done], [one.num_cached_tokens for one in done]


def replay_boundary(prompt: list[int]) -> int:
    """Where vLLM keeps a prompt's state: at the last end of a block that leaves a token to read."""
    return (len(prompt) - 1) // BLOCK * BLOCK


def kept_states(engine: Engine) -> int:
    """How many states the cache has for prompts to come."""
    pool = engine.scheduler.kv_cache_manager.block_pool
    return len(pool.cached_block_hash_to_block)


def text(chance: random.Random, count: int) -> list[int]:
    """Tokens of a text; none is the model's end."""
    return [chance.randrange(1, 256) for _ in range(count)]


def test_chats_that_resend_everything_get_the_same_tokens(cached: Engine, tiny: Engine) -> None:
    chance = random.Random(6)
    chats = [text(chance, chance.randrange(40, 90)) for _ in range(CHATS)]
    before = [0] * CHATS
    for turn in range(TURNS):
        noise = [text(chance, length) for length in (1, 2, BLOCK, BLOCK + 1, 70)]
        prompts = [*chats, *noise]
        told, hits = ask(cached, prompts)
        assert told == [tiny.generate([prompt], TOKENS)[0].tokens for prompt in prompts]
        assert hits == [*before, *[0] * len(noise)]
        if turn == 0:  # the bench counts on it: one state for each prompt, whatever its length
            assert kept_states(cached) == sum(replay_boundary(prompt) > 0 for prompt in prompts)
        before = [replay_boundary(chat) for chat in chats]
        chats = [
            [*chat, *tokens, *text(chance, 40)] for chat, tokens in zip(chats, told, strict=False)
        ]


def test_states_that_were_evicted_are_computed_again(cached: Engine, tiny: Engine) -> None:
    chance = random.Random(8)
    prompts = [text(chance, 50 + at) for at in range(30)]  # six more than there are blocks
    alone = [tiny.generate([prompt], TOKENS)[0].tokens for prompt in prompts]
    assert ask(cached, prompts) == (alone, [0] * len(prompts))
    told, hits = ask(cached, list(reversed(prompts)))
    assert told == alone[::-1]
    assert 0 in hits
    assert any(hits)


def test_requests_that_lose_their_blocks(cached: Engine, tiny: Engine) -> None:
    import batch_play

    chance = random.Random(7)
    stem = text(chance, 200)
    prompts = [[*stem[: 40 * at], at + 1, *stem[:at]] for at in range(1, 6)] * 3
    requests = [batch_play.Request(prompt, 50, at) for at, prompt in enumerate(prompts)]
    script = batch_play.Script(requests, (64, 33, 5), frozenset({7, 20}))
    alone = [tiny.generate([prompt], 50)[0].tokens for prompt in prompts[:5]] * 3
    assert batch_play.play(cached, script) == alone

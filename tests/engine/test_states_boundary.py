"""With the tokenizers and templates that are served: where the next turn's prompt is the same.

The snapshot of automatic reuse is taken there, so that every turn after the first begins with it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from rwkv_server.states import boundary
from rwkv_server.tokenizer.world import WorldTokenizer

Tokens = Callable[[list[dict[str, Any]], dict[str, Any]], list[int]]

# Ends and beginnings that a greedy tokenizer could join with the blank line or the colon.
ENDS = ["sure.", "是的。", "等等…", "ja，", " x ", "\n", "a\r", ":", "1", "```", ")", "", "\t"]
WORDS = ["hello", "7", "世界", "émigré", "(", "`x`", "a\n\nb", "User", "Assistant:", "😀", "\n \n"]


@pytest.fixture(scope="module", params=["world", "tiny-recall"])
def tokens(request: pytest.FixtureRequest, tiny_model: Path, tmp_path_factory: Any) -> Tokens:
    if request.param == "world":
        tokenizer: Any = WorldTokenizer.from_pretrained(tmp_path_factory.mktemp("none"))
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)

    def encode(messages: list[dict[str, Any]], options: dict[str, Any]) -> list[int]:
        text = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **options
        )
        return list(tokenizer.encode(text))

    return encode


def invented_chat(seed: int, turns: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)

    def text() -> str:
        words = " ".join(chance.choice(WORDS) for _ in range(chance.randint(0, 5)))
        return f"so {words}{chance.choice(ENDS)}"

    messages = [{"role": "system", "content": text()}] if seed % 2 else []
    for _ in range(turns):
        messages += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
    return [*messages, {"role": "user", "content": "last"}]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"enable_thinking": True},
        {"enable_thinking": False},
        {"enable_thinking": True, "reasoning_effort": "high"},
    ],
    ids=["plain", "thinking", "not thinking", "thinking hard"],
)
@pytest.mark.parametrize("seed", range(20))
def test_the_stable_part_of_each_turn_begins_the_next(
    tokens: Tokens, options: dict[str, Any], seed: int
) -> None:
    short, long = (tokens(chat["messages"], options) for chat in boundary.probes({"messages": []}))
    passing = boundary.find_passing(short, long)
    messages = invented_chat(seed, turns=3)
    ends = [at + 1 for at, one in enumerate(messages) if one["role"] == "user"]
    prompts = [tokens(messages[:end], options) for end in ends]
    for earlier, later in itertools.pairwise(prompts):
        stable = boundary.stable_length(earlier, passing)
        assert later[:stable] == earlier[:stable]
        assert stable >= len(earlier) - len(passing) - 1


def test_without_options_the_whole_prompt_is_stable(tokens: Tokens) -> None:
    short, long = (tokens(chat["messages"], {}) for chat in boundary.probes({}))
    assert boundary.find_passing(short, long) == ()

"""Requests that a prefix's snapshot may serve."""

from __future__ import annotations

from typing import Any

import pytest

from rwkv_server.states import reusable

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
PARTS = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"n": 1, "echo": False, "repetition_penalty": 1.0, "prompt_logprobs": None},
        {"seed": 7, "temperature": 1, "presence_penalty": 1, "frequency_penalty": 0.5},
        {"logprobs": True, "top_logprobs": 3, "stop": ["x"], "stream": True},
        {"response_format": {"type": "json_object"}, "tools": [{"type": "function"}]},
        {"messages": [{"role": "user", "content": [PARTS[0]]}]},
        {"prompt": "text"},
        {"prompt": [1, 2, 3]},
    ],
    ids=str,
)
def test_what_reads_only_its_own_tokens_may(extra: dict[str, Any]) -> None:
    assert reusable.may_reuse(CHAT | extra, seeds_by_place=False)


@pytest.mark.parametrize(
    "extra",
    [
        {"n": 2},
        {"best_of": 2},
        {"use_beam_search": True},
        {"echo": True},
        {"prompt_logprobs": 0},
        {"truncate_prompt_tokens": 10},
        {"truncation": "auto"},
        {"return_token_ids": True},
        {"repetition_penalty": 1.1},
        {"continue_final_message": True},
        {"suffix": "x"},
        {"thinking_token_budget": 0},
        {"messages": []},
        {"messages": [{"role": "user", "content": PARTS}]},
        {"prompt": ["one", "two"]},
        {"prompt": [[1, 2], [3]]},
        {"prompt": []},
        {"prompt": [True]},
    ],
    ids=str,
)
def test_what_looks_at_the_prompt_runs_without(extra: dict[str, Any]) -> None:
    assert not reusable.may_reuse(CHAT | extra, seeds_by_place=False)


def test_seeds_that_count_from_the_beginning_run_without() -> None:
    assert not reusable.may_reuse(CHAT | {"seed": 0}, seeds_by_place=True)
    assert reusable.may_reuse(CHAT | {"seed": None}, seeds_by_place=True)

"""Where a prompt stops being the beginning of the next one."""

from __future__ import annotations

import pytest

from rwkv_server.states import boundary


@pytest.mark.parametrize(
    ("short", "long", "passing"),
    [
        ([1, 2, 3], [1, 2, 3, 4, 5], ()),
        ([1, 2, 3, 8, 9], [1, 2, 3, 4, 5, 8, 9], (8, 9)),
        ([1, 2, 7], [1, 2], (7,)),
        ([7], [1, 2], (7,)),
    ],
    ids=["a template that adds nothing", "an open thought", "a shorter one", "nothing in common"],
)
def test_what_passes(short: list[int], long: list[int], passing: tuple[int, ...]) -> None:
    assert boundary.find_passing(short, long) == passing


@pytest.mark.parametrize(
    ("tokens", "passing", "length"),
    [
        ([1, 2, 3], (), 3),
        ([1, 2, 3, 8, 9], (8, 9), 2),
        ([1, 2, 3, 8], (8, 9), 4),
        ([1, 8, 9], (8, 9), 3),
        ([9], (8, 9), 1),
    ],
    ids=["all stays", "the end goes", "another end", "nothing would be left", "shorter"],
)
def test_what_stays(tokens: list[int], passing: tuple[int, ...], length: int) -> None:
    assert boundary.stable_length(tokens, passing) == length


def test_probes_have_the_options_and_no_text_of_the_chat() -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "secret"}],
        "chat_template_kwargs": {"enable_thinking": True},
        "reasoning_effort": None,
        "temperature": 0,
        "stream": True,
    }
    short, long = boundary.probes(body)
    wanted = {"model": "m", "chat_template_kwargs": {"enable_thinking": True}}
    assert {k: v for k, v in short.items() if k != "messages"} == wanted
    assert long["messages"][: len(short["messages"])] == short["messages"]
    assert "secret" not in str(long)
    assert boundary.options_key(body) == boundary.options_key({**body, "temperature": 1})
    assert boundary.options_key(body) != boundary.options_key({**body, "model": "n"})
    long = {**body, "documents": ["text \ud800" * 1000]}
    assert len(boundary.options_key(long)) == len(boundary.options_key(body)) < 100

"""Inputs of Responses as chats; tests/engine holds them against vLLM's own reading."""

from __future__ import annotations

from typing import Any

import pytest

from rwkv_server.states.web import response_input


def said(text: str, role: str = "assistant") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "output_text", "text": text}]}


def call(number: int) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{number}", "name": "look", "arguments": "{}"}


def test_a_text_is_a_users() -> None:
    found = response_input.read_chat({"model": "m", "input": "Hi", "instructions": "Be short."})
    assert found == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "Hi"},
        ],
        "chat_template_kwargs": {},
    }


def test_parts_of_a_users_message_stay_apart_and_of_a_reply_the_first_counts() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]
    reply = {"role": "assistant", "content": [{"type": "output_text", "text": "c"}, *parts]}
    assert response_input.read_messages([{"role": "user", "content": parts}, reply]) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c"},
    ]


def test_thought_words_and_calls_of_one_turn_are_one_message() -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"text": "hm"}]}
    output = {"type": "function_call_output", "call_id": "c1", "output": "7"}
    found = response_input.read_messages([thought, said("One moment."), call(1), call(2), output])
    assert found is not None
    assert [message["role"] for message in found] == ["assistant", "tool"]
    assert found[0]["reasoning"] == "hm"
    assert found[0]["content"] == "One moment."
    assert [one["id"] for one in found[0]["tool_calls"]] == ["c1", "c2"]


def test_a_second_reply_is_a_message_of_its_own() -> None:
    found = response_input.read_messages([said("a"), said("b")])
    assert found == [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]


@pytest.mark.parametrize(
    ("effort", "own", "wanted"),
    [
        ("high", {}, {"reasoning_effort": "high", "enable_thinking": True}),
        ("none", {}, {"reasoning_effort": "none", "enable_thinking": False}),
        ("low", {"enable_thinking": False}, {"reasoning_effort": "low", "enable_thinking": False}),
        (None, {"enable_thinking": True}, {"enable_thinking": True}),
    ],
)
def test_effort_goes_to_the_template(
    effort: str | None, own: dict[str, Any], wanted: dict[str, Any]
) -> None:
    body = {"input": "Hi", "reasoning": {"effort": effort}, "chat_template_kwargs": own}
    found = response_input.read_chat(body)
    assert found is not None
    assert found["chat_template_kwargs"] == wanted


@pytest.mark.parametrize(
    "body",
    [
        {"input": []},
        {"input": None},
        {"input": ["text"]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        {"input": [{"role": "user", "content": []}]},
        {"input": [{"content": "no role"}]},
        {"input": [{"type": "file_search_call", "id": "f"}]},
        {"input": [{"type": "reasoning", "encrypted_content": "x"}]},
        {"input": [{"type": "function_call", "name": "x"}]},
        {"input": [{**call(1), "namespace": "n"}]},
        {"input": [said("half") | {"status": "incomplete"}]},
        {"input": "Hi", "tools": [{"type": "web_search"}]},
        {"input": "Hi", "prompt": {"id": "p"}},
    ],
    ids=lambda body: str(body)[:60],
)
def test_what_may_be_read_otherwise_is_no_chat(body: dict[str, Any]) -> None:
    assert response_input.read_chat(body) is None


def test_tools_are_told_as_a_chat_tells_them() -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    found = response_input.read_chat({"input": "Hi", "tools": [tool]})
    assert found is not None
    function = {"name": "look", "parameters": {"type": "object"}}
    assert found["tools"] == [{"type": "function", "function": function}]
    assert "tools" not in (response_input.read_chat({"input": "Hi", "tools": []}) or {})


def test_without_arguments_the_template_hears_of_the_effort_only():
    body = {"input": "Hi", "reasoning": {"effort": "high"}, "chat_template_kwargs": {"a": 1}}
    found = response_input.read_chat(body, arguments=False)
    assert found["chat_template_kwargs"] == {"reasoning_effort": "high"}


USER = {"role": "user", "content": [{"type": "input_text"}, {"type": "input_text"}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]}


@pytest.mark.parametrize(
    ("content", "plain"),
    [
        ("Hi", True),
        ([USER, SAID, USER], True),
        ([USER, {"role": "assistant", "content": "Hi"}, USER], True),
        ([USER, USER], True),
        ([USER, SAID, SAID], False),
        ([USER, {"type": "reasoning"}, SAID], False),
        ([USER, {"type": "function_call"}], False),
        ([USER, {**SAID, "content": [{}, {}]}], False),
        ([None], False),
    ],
    ids=str,
)
def test_inputs_that_old_and_new_read_alike(content, plain):
    assert response_input.is_plain({"input": content}) is plain

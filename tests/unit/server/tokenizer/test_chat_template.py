"""The World chat format, rendered as transformers renders templates."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

import rwkv_server.tokenizer

TEMPLATE = Path(rwkv_server.tokenizer.__file__).with_name("chat_template.jinja")
WEATHER = {"name": "weather", "parameters": {"type": "object"}}
CALL = {"function": {"name": "weather", "arguments": {"city": "Köln"}}}


def render(*turns, add_generation_prompt=True, **options):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)

    def fail(message):
        raise jinja2.TemplateError(message)

    environment.globals["raise_exception"] = fail
    messages = [{"role": role, **part} for role, part in turns]
    template = environment.from_string(TEMPLATE.read_text())
    return template.render(
        messages=messages, add_generation_prompt=add_generation_prompt, **options
    )


def says(role, text):
    return role, {"content": text}


HI = says("user", "Hi")


def test_turns():
    text = render(
        says("system", "Be brief."), HI, says("assistant", "Hello."), says("user", "And?")
    )
    assert text == "System: Be brief.\n\nUser: Hi\n\nAssistant: Hello.\n\nUser: And?\n\nAssistant:"


def test_blank_lines_inside_a_turn_go():
    text = " a \r\n\r\n  b\n\n\nc\n"
    assert render(says("user", text)) == "User: a\n  b\nc\n\nAssistant:"


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({}, "User: Hi\n\nAssistant:"),
        ({"enable_thinking": True}, "User: Hi\n\nAssistant: <think"),
        ({"enable_thinking": False}, "User: Hi\n\nAssistant: <think>\n</think>\n"),
        (
            {"enable_thinking": True, "reasoning_effort": "low"},
            "User: Hi think a bit\n\nAssistant: <think",
        ),
        (
            {"enable_thinking": True, "reasoning_effort": "high"},
            "User: Hi think a lot\n\nAssistant: <think",
        ),
        (
            {"enable_thinking": True, "reasoning_effort": "medium"},
            "User: Hi\n\nAssistant: <think",
        ),
        ({"enable_thinking": False, "reasoning_effort": "none"}, "<think>\n</think>\n"),
        ({"add_generation_prompt": False}, "User: Hi"),
    ],
)
def test_thinking(options, end):
    assert render(HI, **options).endswith(end)


def test_earlier_thoughts_are_not_repeated():
    said = says("assistant", "<think>\nHm.\n</think>\nTwo.")
    assert "Assistant: Two.\n\nUser: Hi" in render(HI, said, HI)


def test_a_longer_chat_begins_with_the_shorter_one_and_its_reply():
    reply = "Hello.\nHow are you?"
    longer = render(HI, says("assistant", reply), HI)
    assert longer.startswith(render(HI) + " " + reply + "\n\nUser:")


def test_tools_are_offered_in_the_system_turn():
    function = [{"type": "function", "function": WEATHER}]
    alone = render(HI, tools=function)
    assert alone.startswith("System: You can use these tools:\n")
    assert json.dumps(WEATHER) + "\n" in alone
    both = render(says("system", "Be brief."), HI, tools=function)
    assert both.startswith("System: Be brief.\nYou can use these tools:\n")
    assert both.count("weather") == 1
    for text in (alone, both):
        assert text.count("\n\n") == 2


def test_calls_and_results():
    text = render(
        HI,
        ("assistant", {"content": None, "tool_calls": [CALL]}),
        says("tool", "21 degrees"),
        says("tool", "and rain"),
    )
    called = '```json\n{"name": "weather", "arguments": {"city": "Köln"}}\n```'
    results = "User: Result: 21 degrees\nResult: and rain"
    assert text == f"User: Hi\n\nAssistant: {called}\n\n{results}\n\nAssistant:"


@pytest.mark.parametrize(
    ("turns", "words"), [([], "messages is empty"), ([says("robot", "x")], "role robot")]
)
def test_what_it_refuses(turns, words):
    with pytest.raises(jinja2.TemplateError, match=words):
        render(*turns)

from __future__ import annotations

import json
import re
import time

import pytest

from rwkv_server.web import body, shape
from rwkv_server.web.errors import Refusal

MANY = "1" + "0" * 30


def refused(text):
    with pytest.raises(Refusal) as caught:
        body.check_body(text.encode())
    assert caught.value.status == 400
    assert caught.value.param.partition(".")[0] in caught.value.message
    return caught.value.param


def nested(depth):
    return "[" * depth + "]" * depth


def call(arguments):
    message = {"tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
    return json.dumps({"messages": [message]})


@pytest.mark.parametrize(
    "text",
    [
        f'{{"tools": {nested(shape.MAX_DEPTH)}}}',
        f'{{"messages": [{{"content": "{nested(5000)} {MANY}"}}]}}',
        f'{{"seed": {-(1 << 63)}, "top_k": {(1 << 64) - 1}}}',
        f'{{"temperature": 0.{MANY}, "stop": ["{MANY}"], "top_k": null}}',
        '{"structured_outputs": {"choice": ["a"]}}',
        '{"structured_outputs": null}',
        call('{"a": 1}'),
        call("[no JSON"),
        call(json.dumps({"a": MANY})),
    ],
)
def test_ordinary_shapes_pass(text):
    body.check_body(text.encode())


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (f'{{"a": 1, "tools": {nested(shape.MAX_DEPTH + 1)}}}', "tools"),
        (f'{{"tools": [{{"parameters": {nested(900)}}}]}}', "tools"),
        (call(nested(100_000)), "messages"),
        (call(nested(shape.MAX_DEPTH + 1)), "messages"),
    ],
)
def test_what_nests_too_deeply_is_refused(text, field):
    assert refused(text) == field


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (f'{{"top_k": {MANY}}}', "top_k"),
        (f'{{"top_k": "-{MANY}"}}', "top_k"),
        (f'{{"stream_interval": {1 << 64}}}', "stream_interval"),
        (
            f'{{"repetition_detection": {{"min_count": "{MANY}"}}}}',
            "repetition_detection.min_count",
        ),
        (f'{{"chat_template_kwargs": {{"x": [{{"y": -{MANY}}}]}}}}', "chat_template_kwargs"),
    ],
)
def test_integers_have_64_bits(text, field):
    assert refused(text) == field


@pytest.mark.parametrize("field", ["structured_outputs", "response_format", "text"])
def test_grammars_have_a_bound(field):
    body.check_body(json.dumps({field: {"regex": "é" * 100_000}}).encode())
    body.check_body(json.dumps({field: {"regex": "x"}, "prompt": "x" * 200_000}).encode())
    assert refused(json.dumps({field: {"choice": ["x" * 100] * 2000}})) == field


@pytest.mark.parametrize("field", ["messages", "input", "tools"])
def test_lists_have_a_bound(field):
    body.check_body(json.dumps({field: [{}] * shape.MAX_ITEMS, "prompt": [1] * 50_000}).encode())
    assert refused(json.dumps({field: [{}] * (shape.MAX_ITEMS + 1)})) == field


def test_many_fields_are_looked_at_once():
    started = time.process_time()
    json.loads(many := json.dumps({f"k{number}": 1 for number in range(200_000)}))
    alone = time.process_time() - started
    started = time.process_time()
    body.check_body(many.encode())
    assert time.process_time() - started < 20 * alone


@pytest.mark.parametrize("value", ["5", '"x"', "[]", "true", "1.5"])
def test_an_object_is_one(value):
    assert refused(f'{{"structured_outputs": {value}}}') == "structured_outputs"


def test_the_bounds_are_told():
    with pytest.raises(Refusal, match=re.escape(f"outside {-(1 << 63)} to {(1 << 64) - 1}")):
        body.check_body(f'{{"top_k": {MANY}}}'.encode())

from __future__ import annotations

import json

import pytest

from rwkv_server.states.connector import params
from rwkv_server.web import body
from rwkv_server.web.errors import Refusal


@pytest.mark.parametrize(
    "text",
    [
        '{"model": "chat", "messages": [{"role": "user", "content": "hi"}]}',
        '{"vllm_xargs": {"other": 1}}',
        '{"messages": [{"content": "kv_transfer_params cache_salt"}]}',
        '{"metadata": {"cache_salt": "nested elsewhere is data"}}',
        '{"seed": 7, "temperature": 0.5}',
        '{"a": {"x": 1}, "b": {"x": 1}}',
        '{"content": "\\ud83d\\ude00 \\\\ud800"}',
        '{"n": 1e2, "text": "é\u2028"}',
    ],
)
def test_ordinary_requests_pass(text):
    body.check_body(text.encode())


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ('{"kv_transfer_params": {}}', "kv_transfer_params"),
        ('{"kv_transfer_params": null}', "kv_transfer_params"),
        ('{"kv_transfer_par\\u0061ms": {}}', "kv_transfer_params"),
        ('{"ec_transfer_params": {}}', "ec_transfer_params"),
        ('{"cache_salt": "x"}', "cache_salt"),
        ('{"vllm_xargs": {"kv_transfer_params": "{}"}}', "vllm_xargs.kv_transfer_params"),
        ('{"vllm_xargs": {"ec_transfer_params": 1}}', "vllm_xargs.ec_transfer_params"),
        ('{"vllm_xargs": {"cache_salt": "x"}}', "vllm_xargs.cache_salt"),
        (json.dumps({"vllm_xargs": {params.FIELD: "x"}}), "vllm_xargs.rwkv_transfer"),
    ],
)
def test_fields_that_steer_internals_are_refused(text, param):
    with pytest.raises(Refusal) as caught:
        body.check_body(text.encode())
    refusal = caught.value
    assert (refusal.status, refusal.code, refusal.param) == (400, "unsupported_field", param)


@pytest.mark.parametrize(
    "tokens", ["[320]", "[0, -1]", '["320"]', "[1e3]", "[1" + "0" * 400 + "]", '["nan"]']
)
def test_stops_that_the_model_does_not_have_are_refused(tokens):
    with pytest.raises(Refusal, match=r"stop_token_ids holds .*, wanted 0 to 319\.") as caught:
        body.check_body(f'{{"stop_token_ids": {tokens}}}'.encode(), vocabulary=320)
    assert (caught.value.status, caught.value.param) == (400, "stop_token_ids")


@pytest.mark.parametrize("tokens", ["[0, 319]", '["7"]', "null", '"x"', "[[320]]", "{}"])
def test_other_stops_are_vllms_business(tokens):
    body.check_body(f'{{"stop_token_ids": {tokens}}}'.encode(), vocabulary=320)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"model": "a", "model": "b"}', "model"),
        ('{"a": [{"b": {"x": 1, "x": 1}}]}', "x"),
        ('{"user": 1, "us\\u0065r": 2}', "user"),
    ],
)
def test_duplicate_keys_are_refused_at_any_depth(text, key):
    with pytest.raises(Refusal) as caught:
        body.check_body(text.encode())
    assert (caught.value.status, caught.value.code) == (400, "duplicate_key")
    assert caught.value.param == key


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b"{'a': 1}",
        b'{"a": 1} trailing',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": "\xff"}',
        b'{"a": ' + b"[" * 200_000,
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"messages": [{"content": "half \\ud800"}]}',
        b'{"\\udfff": 1}',
    ],
)
def test_what_is_no_json_object_is_refused(raw):
    with pytest.raises(Refusal) as caught:
        body.check_body(raw)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")
    assert json.loads(caught.value.body())["error"]["code"] == "invalid_json"


def channel(*messages):
    waiting = list(messages)

    async def receive():
        return waiting.pop(0)

    return receive


def part(content, more):
    return {"type": "http.request", "body": content, "more_body": more}


async def test_a_body_in_parts_is_joined():
    receive = channel(part(b"ab", True), part(b"", True), part(b"c", False))
    assert await body.read_body(receive) == b"abc"


async def test_a_client_that_leaves_half_way():
    receive = channel(part(b"ab", True), {"type": "http.disconnect"})
    assert await body.read_body(receive) is None


async def test_a_body_over_the_limit_is_refused_before_it_is_complete():
    receive = channel(part(b"abc", True), part(b"de", True))
    with pytest.raises(Refusal) as caught:
        await body.read_body(receive, limit=4)
    assert (caught.value.status, caught.value.code) == (413, "request_too_large")


async def test_replay_gives_the_body_once_and_then_the_connection():
    receive = body.replay_body(b"abc", channel({"type": "http.disconnect"}))
    assert await receive() == {"type": "http.request", "body": b"abc", "more_body": False}
    assert await receive() == {"type": "http.disconnect"}


@pytest.mark.parametrize("count", ["129", "129.0", '"5000"', "1" + "0" * 400])
def test_answers_to_one_request_have_a_bound(count):
    body.check_body(b'{"n": 128}')
    body.check_body(b'{"n": "many"}')
    with pytest.raises(Refusal, match="n must be at most 128"):
        body.check_body(f'{{"n": {count}}}'.encode())

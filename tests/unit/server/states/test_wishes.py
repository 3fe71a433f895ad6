from __future__ import annotations

import pytest

from rwkv_server.states import wishes
from rwkv_server.states.errors import StateError, StateInvalidRef, StateUnsupportedOption
from rwkv_server.states.wishes import Wish

MESSAGES = [{"role": "user", "content": "Hi"}]
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]


def read(state=None, headers=(), **body):
    request = {"messages": MESSAGES, **body}
    if state is not None:
        request["state"] = state
    return wishes.read_wish(request, dict(headers))


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ({}, Wish("default")),
        ({"save": True}, Wish("default", save=True)),
        ({"save": False, "ref": "a"}, Wish("default", ref="a")),
        ({"save": "mine", "ttl_s": 60}, Wish("default", save=True, name="mine", ttl_s=60.0)),
        ({"ref": "p0-abcdefgh-x", "save": True}, Wish("default", "p0-abcdefgh-x", True)),
    ],
)
def test_our_field(state, wanted):
    assert read(state) == wanted


def test_the_tenant_is_the_routers():
    assert read({}, {"x-rwkv-tenant": "acme"}.items()) == Wish("acme")
    with pytest.raises(StateInvalidRef):
        read({}, {"x-rwkv-tenant": "a/b"}.items())


@pytest.mark.parametrize("where", ["header", "field", "both"])
def test_a_session_is_named_by_header_or_field(where):
    headers = {"x-session-id": "s1"} if where != "field" else {}
    body = {"session_id": "s1"} if where != "header" else {}
    assert read({"session": "new"}, headers.items(), **body) == Wish(
        "default", save=True, session="s1", opens=True
    )
    assert read({"session": True}, headers.items(), **body) == Wish(
        "default", save=True, session="s1"
    )


def test_a_session_id_without_a_wish_is_only_for_the_router():
    assert read(None, {"x-session-id": "s1"}.items(), session_id="s2") is None


def test_a_session_can_begin_with_a_state():
    wish = read({"session": "new", "ref": "a"}, session_id="s")
    assert (wish.ref, wish.opens) == ("a", True)


@pytest.mark.parametrize(
    ("xargs", "wanted"),
    [
        ({"rwkv_state_read_ref": "a"}, Wish("default", "a", dialect="v1")),
        ({"rwkv_state_write_ref": "auto"}, Wish("default", save=True, dialect="v1")),
        (
            {"rwkv_state_read_ref": "a", "rwkv_state_write_ref": "b"},
            Wish("default", "a", True, "b", dialect="v1"),
        ),
        ({"rwkv_state_read_lease": "x"}, None),
        ({}, None),
    ],
)
def test_state_cache_v1(xargs, wanted):
    assert read(vllm_xargs=xargs) == wanted


@pytest.mark.parametrize(
    ("state", "body", "code", "word"),
    [
        ([], {}, "state_unsupported_option", "state"),
        ({"reff": "a"}, {}, "state_unsupported_option", "state.reff"),
        ({"ref": "a/b"}, {}, "state_invalid_ref", "state.ref"),
        ({"ref": 5}, {}, "state_invalid_ref", "state.ref"),
        ({"save": "p1-x"}, {}, "state_invalid_ref", "p1-x"),
        ({"save": "rwkv-p1-x"}, {}, "state_invalid_ref", "rwkv-p1-x"),
        ({"save": 1.5}, {}, "state_unsupported_option", "state.save"),
        ({"save": "a", "ref": "a"}, {}, "state_invalid_ref", "another"),
        ({"ttl_s": 0}, {}, "state_unsupported_option", "state.ttl_s"),
        ({"ttl_s": True}, {}, "state_unsupported_option", "state.ttl_s"),
        ({"ttl_s": float("nan")}, {}, "state_unsupported_option", "state.ttl_s"),
        ({"session": True}, {}, "state_invalid_ref", "x-session-id"),
        ({"session": "old"}, {"session_id": "s"}, "state_unsupported_option", "state.session"),
        ({"session": True, "ref": "a"}, {"session_id": "s"}, "state_unsupported_option", "head"),
        ({"session": True, "save": False}, {"session_id": "s"}, "state_unsupported_option", "save"),
        ({}, {"n": 2}, "state_unsupported_option", "n "),
        ({}, {"best_of": 3}, "state_unsupported_option", "best_of"),
        ({}, {"prompt_logprobs": 0}, "state_unsupported_option", "prompt_logprobs"),
        ({}, {"stream": "false"}, "state_unsupported_option", "stream"),
        ({}, {"echo": True}, "state_unsupported_option", "echo"),
        ({}, {"use_beam_search": True}, "state_unsupported_option", "use_beam_search"),
        ({}, {"return_token_ids": True}, "state_unsupported_option", "return_token_ids"),
        ({}, {"truncate_prompt_tokens": 5}, "state_unsupported_option", "truncate"),
        ({}, {"messages": IMAGE}, "state_unsupported_option", "messages"),
        (
            {},
            {"vllm_xargs": {"rwkv_state_read_ref": "a"}},
            "state_unsupported_option",
            "rwkv_state_read_ref",
        ),
    ],
)
def test_what_is_refused(state, body, code, word):
    with pytest.raises(StateError, match=word) as caught:
        read(state, **body)
    assert (caught.value.status, caught.value.code) == (400, code)


def test_two_session_ids():
    with pytest.raises(StateInvalidRef, match="two sessions"):
        read({"session": True}, {"x-session-id": "a"}.items(), session_id="b")


def test_harmless_values_pass():
    body = {"n": 1, "echo": False, "prompt_logprobs": None, "best_of": 1}
    assert read({}, **body) == Wish("default")


def test_vllm_sees_nothing_of_it():
    request = {
        "state": {}, "session_id": "s", "model": "chat",
        "vllm_xargs": {"rwkv_state_read_ref": "a", "rwkv_state_read_lease": "b", "x": 1},
    }  # fmt: skip
    assert wishes.without_wish(request) == {"model": "chat", "vllm_xargs": {"x": 1}}


def test_options_are_refused_by_their_name():
    with pytest.raises(StateUnsupportedOption) as caught:
        wishes.check_options({"suffix": "x"})
    assert caught.value.param == "suffix"

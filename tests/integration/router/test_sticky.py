"""Where a request goes: by what it names, the same on every router."""

import json
from typing import Any

import pytest
from router_rig import Rig

pytestmark = pytest.mark.haproxy

HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def places(session: str) -> list[dict[str, Any]]:
    """Each place from which a session can be named."""
    return [
        {"headers": {"x-session-id": session}, "json": HELLO},
        {"json": {**HELLO, "session_id": session}},
        {"json": {**HELLO, "state": {"ref": session}}},
        {"json": {**HELLO, "vllm_xargs": {"rwkv_state_read_ref": session}}},
        {"path": "/v1/responses", "json": {"input": "hello", "previous_response_id": session}},
        {"json": {**HELLO, "prompt_cache_key": session}},
        {"json": {**HELLO, "user": session}},
        {"json": {"messages": [{"role": "user", "content": f"I am {session}"}]}},
        {"path": f"/v1/sessions/{session}"},
        {"path": f"/v1/states/{session}"},
        {"path": f"/v1/rwkv/state/{session}"},
        {"path": f"/v1/responses/{session}"},
        {"path": f"/v1/states?limit=2&session={session}"},
        {"path": f"/v1/states?session={session}", "method": "DELETE"},
    ]


@pytest.mark.parametrize("place", range(len(places("x"))))
def test_each_place_of_a_key_spreads_and_sticks_over_both_routers(rig: Rig, place: int) -> None:
    sessions = [f"session-{index}" for index in range(24)]
    first = [rig.home(0, **places(session)[place]) for session in sessions]
    assert first == [rig.home(1, **places(session)[place]) for session in sessions]
    assert len(set(first)) == 3


def test_a_session_is_one_key_wherever_it_is_named(rig: Rig) -> None:
    for index in range(12):
        named = places(f"session-{index}")
        same = [named[0], named[1], named[8], *named[12:]]
        assert len({rig.home(**place) for place in same}) == 1


def test_states_of_no_session_and_the_description_go_to_any_engine(rig: Rig) -> None:
    for path in ("/v1/states", "/v1/states?session=", "/openapi.json"):
        assert rig.home(path=path)


def test_a_session_in_a_query_is_read_as_it_was_meant(rig: Rig) -> None:
    for index in range(12):
        header = rig.home(headers={"x-session-id": f"a:b c{index}"}, json=HELLO)
        assert rig.home(path=f"/v1/states?session=a%3Ab%20c{index}") == header


def test_the_header_comes_before_all_else(rig: Rig) -> None:
    other = {"session_id": "other", "user": "other", "state": {"ref": "p1-abcdefgh-x"}}
    for index in range(8):
        session = {"x-session-id": f"session-{index}"}
        assert rig.home(headers=session, json=HELLO) == rig.home(
            headers=session, json={**HELLO, **other}
        )


def test_a_session_comes_before_a_ref_and_a_ref_before_a_user(rig: Rig) -> None:
    home = rig.home(json={**HELLO, "session_id": "s"})
    away = next(f"p{n}-abcdefgh-x" for n in range(3) if not home.endswith(str(n)))
    both = {"session_id": "s", "state": {"ref": away}, "user": "u"}
    assert rig.home(json={**HELLO, **both}) == home
    del both["session_id"]
    assert rig.home(json={**HELLO, **both}) == f"chat-engine-{away[1]}"


@pytest.mark.parametrize("prefix", ["", "rwkv-", "resp_"])
@pytest.mark.parametrize("ordinal", range(3))
def test_a_ref_goes_to_the_engine_that_made_it(rig: Rig, prefix: str, ordinal: int) -> None:
    ref = f"{prefix}p{ordinal}-abcdefgh-0123456789012345678901"
    wanted = f"chat-engine-{ordinal}"
    asked = [place for place in places(ref)[2:5] + places(ref)[9:12]]
    for place in asked:
        assert [rig.home(router, **place) for router in (0, 1)] == [wanted, wanted], place
    fork = {"path": f"/v1/states/{ref}/fork", "json": {}}
    assert rig.home(**fork) == wanted


def test_a_ref_of_an_engine_that_is_not_there_goes_somewhere(rig: Rig) -> None:
    for ref in ("p3-abcdefgh-x", "p77-abcdefgh-x", "p01-abcdefgh-x"):
        assert rig.home(0, path=f"/v1/states/{ref}") == rig.home(1, path=f"/v1/states/{ref}")


def test_tenants_with_the_same_session_are_apart(rig: Rig) -> None:
    bob = {"authorization": "Bearer key-of-bob"}
    sessions = [{"x-session-id": f"session-{index}"} for index in range(24)]
    alices = [rig.home(headers=session, json=HELLO) for session in sessions]
    bobs = [rig.home(headers={**session, **bob}, json=HELLO) for session in sessions]
    assert alices != bobs
    assert {seen.values("x-rwkv-tenant")[0] for seen in rig.engines[0].seen[-3:]} <= {
        "alice",
        "bob",
    }


def chat(first: list[dict[str, Any]], turns: int) -> list[dict[str, Any]]:
    """A conversation that begins with some messages, after some turns."""
    more = [
        {"role": "assistant", "content": "well }\n"},
        {"role": "user", "content": "go on \u00e9"},
    ]
    return first + more * turns


OPENINGS = {
    "user": lambda n: [{"role": "user", "content": f"topic {n}"}],
    "system": lambda n: [
        {"role": "system", "content": "be brief {}"},
        {"role": "user", "content": f"topic {n}"},
    ],
    "developer": lambda n: [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": f"topic {n}"},
    ],
    "escaped user": lambda n: [{"role": "user", "content": f'你好 {{}} \\ " \n / {n} 🎈'}],
    "escaped system": lambda n: [
        {"role": "system", "content": '只说 JSON: {"a": [1, "\\"]}'},
        {"role": "user", "content": f"问题 {n}"},
    ],
    "parts": lambda n: [{"role": "user", "content": [{"type": "text", "text": f"问题 {n}"}]}],
    "system of parts": lambda n: [
        {"role": "system", "content": [{"type": "text", "text": "简短"}]},
        {"role": "user", "content": [{"type": "text", "text": f"问题 {n}"}]},
    ],
    "long user": lambda n: [{"role": "user", "content": f"{n} 问题 " * 20_000}],
}


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_chat_without_any_id_sticks_from_its_first_turn(
    rig: Rig, opening: str, ascii_only: bool
) -> None:
    homes = []
    for number in range(16):
        first = OPENINGS[opening](number)
        bodies = [
            json.dumps({"messages": chat(first, turns)}, ensure_ascii=ascii_only).encode()
            for turns in (0, 1, 5)
        ]
        seen = {rig.home(router, content=body) for body in bodies for router in (0, 1)}
        assert len(seen) == 1, f"{opening} {number} moved"
        homes += seen
    assert len(set(homes)) == 3, "all chats on few engines"


def test_the_log_tells_sessions_apart_and_gives_no_id_away(rig: Rig) -> None:
    router = rig.routers[0]
    secret = "session-of-somebody"
    lines = [router.log_line(rig.ask(**place)) for place in places(secret)]
    text = router.log.read_text()
    assert secret not in text
    assert "key-of-alice" not in text
    assert [line["by"] for line in lines] == [
        *("header", "body", "ref", "ref", "ref", "prompt_cache_key", "user", "messages"),
        *("path", "ref", "ref", "ref", "path", "path"),
    ]
    assert lines[0]["session"] == lines[1]["session"] == lines[8]["session"]
    assert all(len(line["session"]) == 16 for line in lines)


@pytest.mark.parametrize(
    "session", ["\u4f60\u597d \u00e9\ud83c\udf88", 'a"b', "a\\b", "a/b", "line\nbreak"]
)
def test_a_session_id_with_escapes_sticks(rig: Rig, session: str) -> None:
    body = json.dumps({**HELLO, "session_id": session}).replace("a/b", "a\\/b").encode()
    assert rig.home(0, content=body) == rig.home(1, content=body)
    assert rig.routers[0].log_line(rig.ask(content=body))["by"] == "body"


def test_a_session_id_inside_a_message_is_only_text(rig: Rig) -> None:
    body = {"messages": [{"role": "user", "content": 'say {"session_id": "s"}'}]}
    assert rig.routers[0].log_line(rig.ask(json=body))["by"] == "messages"

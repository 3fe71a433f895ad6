"""What a router refuses, with which words, and what it changes on the way to an engine."""

import json
import socket
from collections.abc import Iterator

import httpx
import pytest
from router_rig import Rig, deployment, eventually
from stub_engine import Seen

from rwkv_operator.api import spec

pytestmark = pytest.mark.haproxy

MIB = 2**20
CHAT = {"messages": [{"role": "user", "content": "hello"}]}


def error(answer: httpx.Response) -> tuple[int, str, str]:
    """Status, code and text of an error, whose shape is OpenAI's."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    content = answer.json()
    assert set(content) == {"error"}
    assert set(content["error"]) == {"message", "type", "param", "code"}
    return answer.status_code, content["error"]["code"], content["error"]["message"]


def last_seen(rig: Rig, answer: httpx.Response) -> Seen:
    """The request as the engine got it."""
    ordinal = int(answer.headers["x-rwkv-pod"].rpartition("-")[2])
    return rig.engines[ordinal].seen[-1]


def padded(size: int, **fields: str) -> bytes:
    """A body of about that size, the fields last, as OpenAI's SDK sends extra ones."""
    return json.dumps({"messages": [{"role": "user", "content": "x" * size}], **fields}).encode()


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong", "Basic key-of-alice", "key-of-alice", "Bearer key-of-bo"],
)
def test_without_a_valid_key_nobody_is_let_in(rig: Rig, authorization: str | None) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    answer = rig.client.post(
        f"{rig.routers[0].url}/v1/chat/completions", json=CHAT, headers=headers
    )
    assert error(answer) == (
        401,
        "invalid_api_key",
        "invalid API key: send a valid one as Authorization: Bearer <key>",
    )
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/metrics", "/health", "/livez", "/v1", "/v1/", "/v1/embeddings", "/tokenize"),
        *("/invocations", "/docs", "/v1/chat/completions/", "//v1/models", "/v1/../metrics"),
        *("/v1/states/", "/v1/states/a/b", "/v1/states/a/fork/x", "/v1/rwkv/state/", "/drain"),
        *("/v1/sessions", "/V1/models", "/v1/responses/", "/v1/rwkv/state/a/other"),
    ],
)
def test_an_unlisted_path_is_unknown(rig: Rig, path: str) -> None:
    before = [len(engine.seen) for engine in rig.engines]
    with socket.create_connection(("127.0.0.1", rig.routers[0].port)) as raw:
        # A client library would tidy the path up.
        head = f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        raw.sendall(f"{head}authorization: Bearer key-of-alice\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b'"code":"not_found"' in answer
    assert before == [len(engine.seen) for engine in rig.engines]


def test_what_comes_from_outside_as_ours_is_dropped(rig: Rig) -> None:
    headers = {"x-rwkv-tenant": "root", "X-RWKV-Anything": "x", "x-session-id": "s"}
    seen = last_seen(rig, rig.ask(json=CHAT, headers=headers))
    assert seen.values("authorization") == ["Bearer internal"]
    assert seen.values("x-rwkv-tenant") == ["alice"]
    assert seen.values("x-rwkv-anything") == []
    assert seen.values("x-session-id") == ["s"]


def test_a_request_keeps_a_plain_id_and_gets_one_otherwise(rig: Rig) -> None:
    answer = rig.ask(json=CHAT, headers={"x-request-id": "my.id-1"})
    assert answer.headers["x-request-id"] == "my.id-1"
    assert last_seen(rig, answer).values("x-request-id") == ["my.id-1"]
    for bad in ("", "a b", "x" * 129, 'a"b'):
        answer = rig.ask(json=CHAT, headers={"x-request-id": bad})
        made = answer.headers["x-request-id"]
        assert len(made) == 36 and made != bad
        assert last_seen(rig, answer).values("x-request-id") == [made]


def test_answers_name_the_engine_and_no_address(rig: Rig) -> None:
    answer = rig.ask(json=CHAT)
    assert (
        answer.headers["x-rwkv-pod"] == json.loads(answer.text)["choices"][0]["message"]["content"]
    )
    assert "127." not in str(answer.headers)


@pytest.mark.parametrize("session", ["", "x" * 257])
def test_a_bad_session_header_is_refused(rig: Rig, session: str) -> None:
    answer = rig.ask(json={**CHAT, "session_id": "good"}, headers={"x-session-id": session})
    assert error(answer) == (
        400,
        "invalid_session_id",
        "x-session-id must be sent once and be 1 to 256 characters",
    )


def test_two_session_headers_are_refused(rig: Rig) -> None:
    url = f"{rig.routers[0].url}/v1/chat/completions"
    headers = [("authorization", "Bearer key-of-alice")]
    headers += [("x-session-id", "a"), ("x-session-id", "b")]
    assert error(rig.client.post(url, json=CHAT, headers=headers))[:2] == (
        400,
        "invalid_session_id",
    )


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("session", ["", "x" * 257, "你" * 257, "\n" * 400_000])
def test_a_bad_session_in_the_body_is_refused(rig: Rig, session: str, ascii_only: bool) -> None:
    body = json.dumps({**CHAT, "session_id": session}, ensure_ascii=ascii_only)
    answer = rig.ask(content=body.encode())
    assert error(answer) == (
        400,
        "invalid_session_id",
        "session_id must be a text of 1 to 256 characters",
    )


def test_the_longest_sessions_are_taken(rig: Rig) -> None:
    for session in ("x" * 256, "é" * 128):
        assert rig.ask(json={**CHAT, "session_id": session}).status_code == 200
    assert rig.ask(json=CHAT, headers={"x-session-id": "x" * 256}).status_code == 200


@pytest.mark.parametrize("size", [20_000, 300_000, MIB - 500])
def test_a_session_at_the_end_of_a_long_body_is_found(rig: Rig, size: int) -> None:
    body = padded(size, session_id="last")
    assert len(body) <= MIB
    short = rig.home(json={**CHAT, "session_id": "last"})
    assert [rig.home(router, content=body) for router in (0, 1)] == [short, short]


def test_a_body_too_long_to_be_looked_at_needs_the_header(rig: Rig) -> None:
    body = padded(2 * MIB, session_id="s")
    assert error(rig.ask(content=body)) == (
        413,
        "request_too_large",
        "send x-session-id with requests over 1048576 bytes",
    )
    answer = rig.ask(content=body, headers={"x-session-id": "s"})
    assert answer.json()["body_bytes"] == len(body)


def test_no_request_is_longer_than_the_limit(rig: Rig) -> None:
    body = padded(32 * MIB)
    assert error(rig.ask(content=body, headers={"x-session-id": "s"})) == (
        413,
        "request_too_large",
        "a request may have 33554432 bytes",
    )


def chunks(body: bytes) -> Iterator[bytes]:
    """A body of undeclared length."""
    for start in range(0, len(body), 65536):
        yield body[start : start + 65536]


def test_a_body_without_a_length_needs_the_header(rig: Rig) -> None:
    body = padded(1000, session_id="s")
    assert error(rig.ask(content=chunks(body))) == (
        411,
        "length_required",
        "send Content-Length, or x-session-id",
    )
    answer = rig.ask(content=chunks(body), headers={"x-session-id": "s"})
    assert answer.json()["body_bytes"] == len(body)


def test_a_body_without_a_length_does_not_get_past_the_limit(rig: Rig) -> None:
    answer = rig.ask(content=chunks(padded(2 * MIB)), headers={"x-session-id": "s"})
    assert error(answer) == (
        411,
        "length_required",
        "send Content-Length with requests over 1048576 bytes",
    )


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("PUT", "/v1/states/p1-abcdefgh-x/content", "application/octet-stream"),
        ("POST", "/v1/states", "application/octet-stream"),
        ("POST", "/v1/states", "multipart/form-data; boundary=x"),
        ("POST", "/v1/rwkv/state/upload", "multipart/form-data; boundary=x"),
    ],
)
def test_an_upload_is_passed_on_unread(method: str, path: str, kind: str) -> None:
    small = spec.Routing(max_engine_replicas=1, max_body_bytes=2**16, max_request_bytes=2**17)
    body = b"\0" * 2**18
    with Rig(deployment(replicas=1, routing=small), engines=1, routers=1) as rig:
        for content in (body, chunks(body)):
            answer = rig.ask(
                path=path, method=method, content=content, headers={"content-type": kind}
            )
            assert answer.json()["body_bytes"] == len(body)


def test_an_upload_reaches_the_engine_before_its_end_is_there(own_rig: Rig) -> None:
    engine = own_rig.engines[0]
    with socket.create_connection(("127.0.0.1", own_rig.routers[0].port)) as raw:
        head = "PUT /v1/states/p0-abcdefgh-x/content HTTP/1.1\r\nhost: x\r\n"
        head += "authorization: Bearer key-of-alice\r\ncontent-length: 999999\r\n\r\n"
        raw.sendall(head.encode() + b"begin")
        eventually(lambda: engine.begun == 1)
    assert engine.seen == []


def test_states_from_json_follow_the_rules_of_bodies(rig: Rig) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}
    answer = rig.ask(path="/v1/states", content=padded(2 * MIB), headers=headers)
    assert error(answer)[:2] == (413, "request_too_large")
    body = json.dumps({"text": "x", "session_id": "s"}).encode()
    home = rig.home(path="/v1/states", content=body, headers=headers)
    assert home == rig.home(headers={"x-session-id": "s"}, json=CHAT)


def test_too_long_an_upload_is_refused() -> None:
    routing = spec.Routing(max_engine_replicas=2, max_state_bytes=MIB)
    with Rig(deployment(routing=routing, replicas=1), engines=1, routers=1) as rig:
        answer = rig.ask(
            path="/v1/states/p0-abcdefgh-x/content", method="PUT", content=b"x" * 2 * MIB
        )
        assert error(answer) == (
            413,
            "request_too_large",
            "an uploaded state may have 1048576 bytes",
        )


def test_what_is_no_json_goes_on_to_the_engine(rig: Rig) -> None:
    for body in (b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"session_id": {"a": 1}}', b"{}"):
        assert rig.ask(content=body).status_code == 200


def test_a_body_that_never_comes_is_given_up() -> None:
    timeouts = spec.Timeouts(request_seconds=1)
    routing = spec.Routing(max_engine_replicas=1, timeouts=timeouts)
    with Rig(deployment(routing=routing, replicas=1), engines=1, routers=1) as rig:
        with socket.create_connection(("127.0.0.1", rig.routers[0].port)) as raw:
            head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n"
            raw.sendall(f"{head}authorization: Bearer key-of-alice\r\n\r\n{{".encode())
            answer = raw.recv(65536)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"request_timeout"' in answer


def test_open_access_is_one_tenant() -> None:
    open_to_all = deployment(auth=spec.Auth("Open"))
    with Rig(open_to_all, engines=1, routers=1) as rig:
        answer = rig.client.get(f"{rig.routers[0].url}/v1/models")
        assert answer.status_code == 200
        seen = last_seen(rig, answer)
        assert seen.values("x-rwkv-tenant") == ["default"]
        assert seen.values("authorization") == ["Bearer internal"]


def test_an_engine_that_refuses_the_router_is_no_client_error(own_rig: Rig) -> None:
    for engine in own_rig.engines:
        engine.internal_key = "another"
    assert error(own_rig.ask(json=CHAT)) == (
        502,
        "upstream_failed",
        "the model server refused the key of its router",
    )


def test_headers_leave_the_room_that_bodies_need(rig: Rig) -> None:
    for size, status in ((60 * 2**10, 200), (66 * 2**10, 431)):
        answer = rig.ask(headers={"x-session-id": "a", "x-long": "x" * size}, json=CHAT)
        assert answer.status_code == status
    assert error(answer)[1] == "headers_too_large"

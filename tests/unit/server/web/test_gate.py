from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from prometheus_client import REGISTRY
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from rwkv_server.metrics import IN_FLIGHT
from rwkv_server.web.gate import Gate

KEY = {"authorization": "Bearer secret"}


async def echo(request):
    return JSONResponse({"echo": (await request.body()).decode()})


async def stream(request):
    async def parts():
        for number in range(3):
            yield f"data: {number}\n\n"

    return StreamingResponse(parts(), media_type="text/event-stream")


APP = Starlette(
    routes=[
        Route("/v1/models", echo),
        Route("/v1/completions", echo, methods=["POST"]),
        Route("/v1/chat/completions", stream, methods=["POST"]),
        Route("/health", echo),
        Route("/metrics", echo),
        Route("/tokenize", echo, methods=["GET", "POST"]),
    ]
)


def client(host="10.1.2.3"):
    transport = httpx.ASGITransport(Gate(APP, key="secret"), client=(host, 4321))
    return httpx.AsyncClient(transport=transport, base_url="http://engine")


async def test_stop_tokens_are_bounded_by_the_models_vocabulary(monkeypatch):
    monkeypatch.setenv("RWKV_VOCABULARY", "320")
    async with client() as http:
        content = b'{"prompt": "hi", "min_tokens": 1, "stop_token_ids": [320]}'
        answer = await http.post("/v1/completions", headers=KEY, content=content)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stop_token_ids")


async def test_a_request_with_the_key_arrives_unchanged():
    async with client() as http:
        answer = await http.post("/v1/completions", headers=KEY, content=b'{"prompt": "hi"}')
    assert answer.json() == {"echo": '{"prompt": "hi"}'}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "secret"},
        {"authorization": "Basic secret"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer secret "},
        {"authorization": "Bearer secret, Bearer secret"},
        [("authorization", "Bearer secret"), ("authorization", "Bearer secret")],
    ],
)
async def test_without_the_one_key_the_answer_is_openais_401(headers):
    async with client() as http:
        for method, path in [("GET", "/v1/models"), ("POST", "/v1/completions")]:
            answer = await http.request(method, path, headers=headers, content=b"{}")
            assert answer.status_code == 401
            error = answer.json()["error"]
            assert (error["code"], error["type"]) == ("invalid_api_key", "authentication_error")
            assert "secret" not in answer.text


async def test_a_route_that_is_not_listed_is_hidden_even_with_the_key():
    async with client("127.0.0.1") as http:
        answer = await http.get("/tokenize", headers=KEY)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize("path", ["/health", "/metrics"])
async def test_health_and_metrics_are_for_the_pod_alone(path):
    async with client("127.0.0.1") as inside, client() as outside:
        assert (await inside.get(path)).status_code == 200
        assert (await outside.get(path, headers=KEY)).status_code == 404


async def test_a_bad_body_never_reaches_the_app():
    async with client() as http:
        answer = await http.post("/v1/completions", headers=KEY, content=b'{"cache_salt": "x"}')
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "cache_salt"
    assert answer.headers["content-type"] == "application/json"


async def serve(path, body, on_message):
    """One request at the ASGI level, where chunks can be seen as they are sent."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"authorization", b"Bearer secret")],
        "client": ("10.1.2.3", 1),
    }
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if messages:
            return messages.pop()
        await asyncio.Event().wait()

    await Gate(APP, key="secret")(scope, receive, on_message)


def in_flight():
    return REGISTRY.get_sample_value(IN_FLIGHT)


async def test_chunks_pass_one_by_one_and_count_as_in_flight_until_the_last():
    seen = []

    async def on_message(message):
        seen.append((message.get("body"), in_flight()))

    await serve("/v1/chat/completions", b"{}", on_message)
    assert [body for body, _ in seen if body] == [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n"]
    assert {count for _, count in seen} == {1}
    assert in_flight() == 0


async def test_an_app_that_fails_is_not_counted_for_ever():
    async def broken(scope, receive, send):
        raise ConnectionError

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "client": ("10.1.2.3", 1)}
    scope["headers"] = [(b"authorization", b"Bearer secret")]

    async def receive():
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message):
        pass

    with pytest.raises(ConnectionError):
        await Gate(broken, key="secret")(scope, receive, send)
    assert in_flight() == 0


async def test_refusals_are_counted_by_code():
    async def ignore(message):
        pass

    def count():
        return REGISTRY.get_sample_value("rwkv_http_refused_total", {"code": "duplicate_key"}) or 0

    before = count()
    await serve("/v1/completions", json.dumps({"a": 1}).replace("}", ', "a": 2}').encode(), ignore)
    assert count() == before + 1


async def test_websockets_are_closed():
    sent = []

    async def send(message):
        sent.append(message)

    await Gate(APP, key="secret")({"type": "websocket", "path": "/v1/realtime"}, None, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_the_key_comes_from_vllms_own_variable_and_must_be_there(monkeypatch):
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    with pytest.raises(KeyError):
        Gate(APP)
    monkeypatch.setenv("VLLM_API_KEY", "")
    with pytest.raises(ValueError, match="refusing to serve without a key"):
        Gate(APP)

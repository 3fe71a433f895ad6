from __future__ import annotations

import pytest

from rwkv_server.web import routes
from rwkv_server.web.errors import Refusal


@pytest.mark.parametrize(
    ("method", "path", "access"),
    [
        ("GET", "/v1/models", routes.Access.KEY),
        ("POST", "/v1/chat/completions", routes.Access.KEY),
        ("POST", "/v1/completions", routes.Access.KEY),
        ("POST", "/v1/responses", routes.Access.KEY),
        ("GET", "/openapi.json", routes.Access.KEY),
        ("DELETE", "/v1/states", routes.Access.KEY),
        ("GET", "/v1/states/p0-a1b2c3d4-x", routes.Access.KEY),
        ("PUT", "/v1/states/chapter:1/content", routes.Access.KEY),
        ("POST", "/v1/rwkv/state/upload", routes.Access.KEY),
        ("POST", "/v1/rwkv/state/a/clone", routes.Access.KEY),
        ("GET", "/v1/responses/resp_p0-a1b2c3d4-x", routes.Access.KEY),
        ("GET", "/internal/states/x", routes.Access.KEY),
        ("DELETE", "/internal/turns", routes.Access.KEY),
        ("POST", "/internal/flush", routes.Access.LOOPBACK),
        ("GET", "/health", routes.Access.LOOPBACK),
        ("GET", "/metrics", routes.Access.LOOPBACK),
    ],
)
def test_listed_routes(method, path, access):
    assert routes.find_access(method, path) is access


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/invocations",
        "/tokenize",
        "/docs",
        "/openapi.json/",
        "/v1/messages",
        "/v1/states/",
        "/v1/states/a/b",
        "/v1/states/a/content/",
        "/v1/states//content",
        "/v1/sessions",
        "/v1/rwkv/state",
        "/internal/states/",
        "/v1/chat/completions/batch",
        "/v1/chat/completions/",
        "//v1/models",
        "/V1/models",
        "/v1/models/../models",
        "/metrics/",
        "/v1/responses/resp_1/cancel",
    ],
)
def test_everything_else_does_not_exist(path):
    for method in ("GET", "POST", "DELETE"):
        with pytest.raises(Refusal) as caught:
            routes.find_access(method, path)
        assert (caught.value.status, caught.value.code) == (404, "not_found")


def test_another_method_is_told_the_right_one():
    with pytest.raises(Refusal) as caught:
        routes.find_access("GET", "/v1/completions")
    assert caught.value.status == 405
    assert caught.value.headers == {"allow": "POST"}


def test_several_methods_are_all_told():
    with pytest.raises(Refusal) as caught:
        routes.find_access("PATCH", "/v1/states/a")
    assert caught.value.headers == {"allow": "GET, DELETE"}


@pytest.mark.parametrize(
    ("method", "path", "writes"),
    [
        ("POST", "/v1/states", True),
        ("DELETE", "/v1/sessions/a", True),
        ("PUT", "/v1/states/a/content", True),
        ("GET", "/v1/states/a", False),
        ("POST", "/internal/flush", False),
        ("POST", "/v1/completions", False),
    ],
)
def test_a_drain_waits_for_what_writes_a_state(method, path, writes):
    assert routes.is_write(method, path) is writes


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.244.0.7", False),
        ("::ffff:10.0.0.1", False),
        ("testclient", False),
        ("", False),
    ],
)
def test_loopback(host, inside):
    assert routes.is_loopback((host, 1234)) is inside


def test_a_connection_without_an_address_is_not_loopback():
    assert not routes.is_loopback(None)

"""Every route that vLLM mounts is either answered or hidden on purpose."""

from __future__ import annotations

import httpx
import pytest

from rwkv_server.parent import args as child
from rwkv_server.web import routes

KEY = {"authorization": "Bearer secret"}

# What vLLM 0.32.0 mounts and an engine doesn't answer. A route that is on neither list was never
# looked at: allow it in rwkv_server/web/routes.py, or add it here.
CLOSED = {
    "/docs",
    "/docs/oauth2-redirect",
    "/generative_scoring",
    "/inference/v1/abort_requests",
    "/inference/v1/generate",
    "/invocations",
    "/is_scaling_elastic_ep",
    "/kv_event_sources",
    "/load",
    "/ping",
    "/redoc",
    "/scale_elastic_ep",
    "/tokenize",
    "/detokenize",
    "/v1/chat/completions/batch",
    "/v1/chat/completions/derender",
    "/v1/chat/completions/render",
    "/v1/completions/derender",
    "/v1/completions/render",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/messages/render",
    "/v1/responses/render",
    "/v1/responses/{response_id}/cancel",
    "/v1/systemone",
    "/version",
}


@pytest.fixture(scope="module")
def app():
    """vLLM's own application with every optional route, behind our gate."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.entrypoints.openai.api_server import build_app
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_API_KEY", "secret")
        parser = make_arg_parser(FlexibleArgumentParser())
        layers = [f"--middleware={name}" for name in child.MIDDLEWARE]
        args = parser.parse_args(["--model=x", *layers])
        app = build_app(args, ("generate",), None)
        app.middleware_stack = app.build_middleware_stack()
        return app


def test_the_gate_is_outermost_and_the_states_come_next(app):
    modules = [middleware.cls.__module__ for middleware in app.user_middleware[:2]]
    assert modules == ["rwkv_server.web.gate", "rwkv_server.states.web.layer"]


def test_every_route_was_looked_at(app):
    paths = {route.path for route in app.routes}
    known = set(routes.ALLOWED) | {path for path in paths if routes.is_state(path)}
    assert paths - CLOSED - known == set(), "allow or close these"
    assert set(routes.ALLOWED) <= paths
    assert CLOSED - paths == set(), "vLLM no longer has these: take them off the list"


async def test_closed_routes_do_not_exist_whatever_the_method_and_key(app):
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        for path in sorted(CLOSED):
            # What reads as the id of a kept response is asked of the states, never of vLLM.
            if routes.is_state(path):
                assert (await client.post(path, headers=KEY)).status_code == 405
                continue
            for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
                answer = await client.request(method, path.replace("{response_id}", "resp_1"))
                again = await client.request(method, path, headers=KEY)
                assert (answer.status_code, again.status_code) == (404, 404), (method, path)


@pytest.mark.parametrize("path", [*sorted(routes.GENERATING), "/v1/models"])
async def test_open_routes_need_the_key(app, path):
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        method = routes.ALLOWED[path][0]
        answer = await client.request(method, path, json={})
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"

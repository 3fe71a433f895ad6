"""The layer in front of vLLM's app, `rwkv_server.states.web.layer.StateLayer`.

Requests to generate pass untouched unless they wish something of a state; the states' own routes
are answered here; all else is vLLM's. The gate stands before it: what arrives has the key, and its
JSON is sound. Loaded through `--middleware`, so that all else comes from the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rwkv_server.states import counters, wishes
from rwkv_server.states.errors import StateError, StateNotOffered, StateStoreUnavailable
from rwkv_server.states.runtime import Runtime, start_runtime
from rwkv_server.states.web import chats, inner
from rwkv_server.states.web.errors import refusal_of
from rwkv_server.states.web.exchange import send_reply
from rwkv_server.states.web.generate import Generator
from rwkv_server.states.web.routing import build_routes
from rwkv_server.web import body, routes
from rwkv_server.web.errors import send_refusal

# A body without these bytes has no wish, and isn't parsed.
_WISHES = (b"state", b"\\u")

log = logging.getLogger(__name__)

Start = Callable[[], Awaitable[Runtime | None]]


class StateLayer:
    """ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp, start: Start = start_runtime) -> None:
        """Wrap `app`; `start` makes what states need, once, or nothing where there are none."""
        self._app, self._start = app, start
        self._lock = asyncio.Lock()
        self._runtime: Runtime | None = None
        self._generator: Generator | None = None
        self._routes: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] in routes.GENERATING:
            await self._generate(scope, receive, send)
        elif routes.is_state(scope["path"]):
            await self._answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _generate(self, scope: Scope, receive: Receive, send: Send) -> None:
        content = await body.read_body(receive)
        if content is None:
            return
        if not any(mark in content for mark in _WISHES):
            await self._app(scope, body.replay_body(content, receive), send)
            return
        request = json.loads(content)
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        try:
            wish = wishes.read_wish(request, headers)
            if wish is None:
                await self._app(scope, body.replay_body(content, receive), send)
                return
            del content
            generator = await self._ready(scope)
            await generator.serve(generator.exchange(scope, receive, send, request), wish)
        except StateError as error:
            counters.failures.labels(error.code).inc()
            await send_refusal(refusal_of(error), send)
        except inner.Declined as declined:
            await send_reply(send, declined.reply)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._ready(scope)
        except StateError as error:
            await send_refusal(refusal_of(error), send)
            return
        if self._routes is not None:
            await self._routes(scope, receive, send)

    async def _ready(self, scope: Scope) -> Generator:
        """Start what isn't there yet.

        Raises:
            StateNotOffered: this engine has no states.
            StateStoreUnavailable: the store doesn't answer; the next request tries again.
        """
        async with self._lock:
            if self._generator is None:
                runtime = await self._start()
                if runtime is None:
                    raise StateNotOffered("this engine serves no states", param="state")
                self._runtime = runtime
                self._generator = Generator(self._app, runtime.turns, chats.take_tokens())
                self._routes = build_routes(self._app, scope.get("app"), runtime)
            return self._generator

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start with the server and end with it; a store that is down holds nothing up."""

        async def receive_first() -> Message:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._ready(scope)
                except StateNotOffered:
                    pass
                except StateStoreUnavailable as error:
                    log.warning("no states until the store answers: %s", error.message)
            return message

        try:
            await self._app(scope, receive_first, send)
        finally:
            if self._runtime is not None:
                with contextlib.suppress(StateError):
                    await self._runtime.close()

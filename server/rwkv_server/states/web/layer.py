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
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rwkv_server import vllm_chat_compat
from rwkv_server.states import counters, wishes
from rwkv_server.states.errors import StateError, StateNotOffered, StateStoreUnavailable
from rwkv_server.states.patience import Patience
from rwkv_server.states.runtime import Runtime, start_runtime
from rwkv_server.states.web import inner
from rwkv_server.states.web.desk import Desk, open_desk
from rwkv_server.states.web.errors import refusal_of
from rwkv_server.states.web.exchange import Exchange, send_reply
from rwkv_server.states.web.response_wish import read_response_wish, unasked_wish
from rwkv_server.states.web.responses import RESPONSES
from rwkv_server.states.web.text import Text
from rwkv_server.web import body, routes
from rwkv_server.web.errors import send_refusal

# A body without these bytes has no wish.
_WISHES = (b"state", b"\\u")

# How long a store that didn't answer isn't asked again.
_PAUSE_S = 5.0

log = logging.getLogger(__name__)

Start = Callable[[], Awaitable[Runtime | None]]


class StateLayer:
    """ASGI middleware; see the module."""

    def __init__(self, app: ASGIApp, start: Start = start_runtime) -> None:
        """Wrap `app`; `start` makes what states need, once, or nothing where there are none."""
        self._app, self._start = app, start
        self._lock = asyncio.Lock()
        self._patience = Patience()
        self._runtime: Runtime | None = None
        self._desk: Desk | None = None
        self._failure: StateStoreUnavailable | None = None
        self._again_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] in routes.GENERATING:
            vllm_chat_compat.carry_nothing()
            await self._generate(scope, receive, send)
        elif routes.is_state(scope["path"]):
            await self._answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _generate(self, scope: Scope, receive: Receive, send: Send) -> None:
        content = await body.read_body(receive)
        if content is None:
            return
        try:
            served = self._concerns(scope["path"], content) and await self._serve(
                self._exchange(scope, receive, send, json.loads(content))
            )
        except StateError as error:
            counters.failures.labels(error.code).inc()
            await send_refusal(refusal_of(error), send)
        except inner.Declined as declined:
            await send_reply(send, declined.reply)
        else:
            if not served:
                await self._app(scope, body.replay_body(content, receive), send)

    def _concerns(self, path: str, content: bytes) -> bool:
        """Whether a body has to be looked at."""
        reuses = self._desk is not None and self._desk.unasked is not None
        return reuses or path == RESPONSES or any(mark in content for mark in _WISHES)

    def _exchange(self, scope: Scope, receive: Receive, send: Send, request: Any) -> Exchange:
        return Exchange(scope, receive, send, request, Text(self._app, scope, request.get("model")))

    async def _serve(self, exchange: Exchange) -> bool:
        """Answer a request that concerns a state; False where it is vLLM's own."""
        told = reversed(exchange.scope["headers"])  # the first of a name counts, as on all routes
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in told}
        if exchange.path == RESPONSES:
            return await self._respond(exchange, headers)
        wish = wishes.read_wish(exchange.request, headers)
        if wish is not None:
            desk = await self._ready(exchange.scope)
            await desk.generator.serve(exchange, desk.with_reuse(wish, exchange.request))
            return True
        if self._desk is None or self._desk.unasked is None:
            return False
        return await self._desk.unasked.serve(exchange, wishes.read_tenant(headers))

    async def _respond(self, exchange: Exchange, headers: Mapping[str, str]) -> bool:
        """As `_serve`, for a Response; one that would only be kept by default goes on without."""
        desk = self._desk
        if desk is None and read_response_wish(exchange.request, headers, "").insists:
            desk = await self._ready(exchange.scope)
        elif desk is None:
            try:
                desk = await self._patience.ask(lambda: self._ready(exchange.scope))
            except StateError:
                return False
        wanted = read_response_wish(exchange.request, headers, desk.make_id())
        if wanted.wish is not None:
            wish = desk.with_reuse(wanted.wish, exchange.request)
            if await desk.responses.serve(exchange, replace(wanted, wish=wish)):
                return True
        if desk.unasked is None or not desk.unasked.may_reuse_response(exchange.request):
            return False
        wanted = unasked_wish(exchange.request, wishes.read_tenant(headers))
        return await desk.responses.serve(exchange, wanted)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            desk = await self._ready(scope)
        except StateError as error:
            await send_refusal(refusal_of(error), send)
        else:
            # They note themselves as its app, and vLLM's own handlers look for theirs.
            await desk.routes(dict(scope), receive, send)

    async def _ready(self, scope: Scope) -> Desk:
        """Start what isn't there yet.

        Raises:
            StateNotOffered: this engine has no states.
            StateStoreUnavailable: the store doesn't answer; the next request tries again.
        """
        async with self._lock:
            if self._desk is None:
                if self._failure is not None and time.monotonic() < self._again_at:
                    raise self._failure
                try:
                    runtime = await self._start()
                except StateStoreUnavailable as error:
                    # Others don't wait for the same store one after another.
                    self._failure, self._again_at = error, time.monotonic() + _PAUSE_S
                    raise
                if runtime is None:
                    raise StateNotOffered("this engine serves no states", param="state")
                self._runtime = runtime
                self._desk = open_desk(self._app, scope.get("app"), runtime)
            return self._desk

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

"""The middleware itself, `rwkv_server.web.gate.Gate`: route, key, body, then vLLM.

vLLM adds it last, so it is the outermost and sees every request first. Responses pass through
untouched, chunk by chunk.
"""

from __future__ import annotations

import hmac
import os

from prometheus_client import Counter, Gauge
from starlette.types import ASGIApp, Receive, Scope, Send

from rwkv_server.metrics import IN_FLIGHT
from rwkv_server.web import body, routes
from rwkv_server.web.errors import Refusal, send_refusal

_in_flight = Gauge(
    IN_FLIGHT, "Requests that generate or write a state and whose answer isn't complete."
)
_refused = Counter("rwkv_http_refused", "Requests refused before vLLM saw them.", ["code"])


class Gate:
    """ASGI middleware that lets listed routes through and answers for all others."""

    def __init__(self, app: ASGIApp, key: str | None = None) -> None:
        """Wrap `app`; vLLM passes no arguments, so all else comes from variables."""
        self._app = app
        self._key = (os.environ["VLLM_API_KEY"] if key is None else key).encode()
        tokens = os.environ.get(body.VOCABULARY)
        self._vocabulary = None if tokens is None else int(tokens)
        if not self._key:
            raise ValueError("VLLM_API_KEY is empty: refusing to serve without a key")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
            if scope["path"] in routes.GENERATING:
                with _in_flight.track_inprogress():
                    await self._generate(scope, receive, send)
            elif routes.is_write(scope["method"], scope["path"]):
                with _in_flight.track_inprogress():
                    await self._app(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except Refusal as refusal:
            _refused.labels(refusal.code).inc()
            await send_refusal(refusal, send)

    async def _generate(self, scope: Scope, receive: Receive, send: Send) -> None:
        checked = await body.check_request(receive, self._vocabulary)
        if checked is not None:
            await self._app(scope, checked, send)

    def _check(self, scope: Scope) -> None:
        access = routes.find_access(scope["method"], scope["path"])
        if access is routes.Access.KEY:
            self._check_key(scope)
        elif not routes.is_loopback(scope.get("client")):
            raise Refusal(404, "not_found", f"No route {scope['method']} {scope['path']}.")

    def _check_key(self, scope: Scope) -> None:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, key = (values[0] if len(values) == 1 else b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(key, self._key):
            raise Refusal(
                401,
                "invalid_api_key",
                "Missing or wrong API key: send it as 'Authorization: Bearer <key>'.",
                headers={"www-authenticate": "Bearer"},
            )

"""One client's request under way, and what passes between it and vLLM's own route."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rwkv_server import vllm_chat_compat
from rwkv_server.states.errors import StateError
from rwkv_server.states.web import inner
from rwkv_server.states.web.refused import without_transfer
from rwkv_server.states.web.text import Text

log = logging.getLogger(__name__)


@dataclass
class Exchange:
    """One request under way.

    Attributes:
        request: the client's body.
        text: the tokenizer, as this client.
        gone: whether the client went away.
    """

    scope: Scope
    receive: Receive
    send: Send
    request: Mapping[str, Any]
    text: Text
    gone: bool = False

    async def listen(self) -> Message:
        """The client's next message; notes that it left."""
        message = await self.receive()
        self.gone = self.gone or message["type"] == "http.disconnect"
        return message

    @property
    def path(self) -> str:
        """The route."""
        return str(self.scope["path"])

    @property
    def streams(self) -> bool:
        """Whether the client wants the answer in pieces."""
        return bool(self.request.get("stream"))


@dataclass(frozen=True)
class Asked:
    """What vLLM's route is asked: a body, and perhaps tokens to carry beside it."""

    body: Mapping[str, Any]
    tokens: Sequence[int] | None = None


async def call(app: ASGIApp, exchange: Exchange, asked: Asked, send: Send) -> None:
    """Ask the exchange's own route of `app`; the client can still leave.

    Raises:
        StateError: what was to answer read other tokens than those; nothing was sent yet.
    """
    body = json.dumps(asked.body, ensure_ascii=False).encode()
    scope = inner.scope_of(exchange.scope, exchange.path, body)
    receive = inner.receive_of(body, exchange.listen)
    if asked.tokens is None:
        await app(scope, receive, send)
        return
    with vllm_chat_compat.carry(asked.tokens) as carried:

        async def check(message: Message) -> None:
            if message.get("status") == 200 and not carried.taken:
                told = "vLLM answers a chat without the tokens that it was given"
                log.error("%s: this vLLM isn't one that states work with", told)
                raise StateError(told)
            await send(message)

        await app(scope, receive, check)


async def collect_reply(app: ASGIApp, exchange: Exchange, asked: Asked) -> inner.Reply:
    """As `call`, for an answer in one piece."""
    reply, parts = inner.Reply(), []

    async def collect(message: Message) -> None:
        if message["type"] == "http.response.start":
            reply.status, reply.headers = message["status"], list(message.get("headers", ()))
        else:
            parts.append(message.get("body", b""))

    await call(app, exchange, asked, collect)
    reply.body = b"".join(parts)
    return reply


async def send_reply(send: Send, reply: inner.Reply) -> None:
    """Send a whole answer."""
    if reply.status != 200:
        reply.body = without_transfer(reply.body)
    headers = [(name, value) for name, value in reply.headers if name != b"content-length"]
    headers.append((b"content-length", str(len(reply.body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send_part(send, reply.body, more=False)


async def send_part(send: Send, body: bytes, more: bool) -> None:
    """Send a part of an answer."""
    await send({"type": "http.response.body", "body": body, "more_body": more})

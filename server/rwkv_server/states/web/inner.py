"""Requests to vLLM's own routes from inside the process, through the app that the layer wraps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope

# What of the client's request goes along.
_KEPT = (b"authorization", b"x-request-id", b"traceparent", b"user-agent", b"host")


class Declined(Exception):
    """vLLM's own route refused; its answer is the client's."""

    def __init__(self, reply: Reply) -> None:
        """Keep the answer."""
        super().__init__(f"status {reply.status}")
        self.reply = reply


@dataclass
class Reply:
    """A whole answer."""

    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    @property
    def streams(self) -> bool:
        """Whether it is a good answer in pieces."""
        kinds = [value for name, value in self.headers if name.lower() == b"content-type"]
        return self.status == 200 and any(kind.startswith(b"text/event-stream") for kind in kinds)


def scope_of(scope: Scope, path: str, body: bytes) -> Scope:
    """The scope of a POST with a JSON body that comes with the client's key."""
    headers = [(name, value) for name, value in scope["headers"] if name in _KEPT]
    headers += [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    return {
        **scope,
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
    }


def receive_of(body: bytes, receive: Receive | None = None) -> Receive:
    """A channel with a whole body; then whatever `receive` says, or nothing for ever."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def channel() -> Message:
        if pending:
            return pending.pop()
        if receive is None:
            await asyncio.get_running_loop().create_future()
            raise AssertionError
        return await receive()

    return channel


async def ask(app: ASGIApp, scope: Scope, path: str, content: Mapping[str, Any]) -> Any:
    """The JSON that a route answers with.

    Raises:
        Declined: it answered with another status than 200.
    """
    body = json.dumps(content, ensure_ascii=False).encode()
    reply = Reply()
    parts: list[bytes] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            reply.status, reply.headers = message["status"], list(message.get("headers", ()))
        else:
            parts.append(message.get("body", b""))

    await app(scope_of(scope, path, body), receive_of(body), send)
    reply.body = b"".join(parts)
    if reply.status != 200:
        raise Declined(reply)
    return json.loads(reply.body)

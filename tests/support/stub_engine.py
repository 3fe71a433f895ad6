"""An engine without a model, for tests of the router: it answers, streams, counts and can fail.

Two ports, as an engine has them: HTTP with the OpenAI paths, and ops with `/readyz`. Everything is
on one asyncio loop; `python tests/support/stub_engine.py` runs one engine by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

JSON_ANSWER = (
    "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
    "\r\n"
)
STREAM_ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
REASONS = {200: "OK", 401: "Unauthorized", 404: "Not Found", 503: "Service Unavailable"}


@dataclass(frozen=True)
class Seen:
    """One request as it has reached the engine."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        """All values of a header."""
        return [value for key, value in self.headers if key == name]

    @property
    def json(self) -> dict[str, Any]:
        """The body as an object; empty where it isn't one."""
        try:
            content = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}


@dataclass
class StubEngine:
    """One engine; its fields may be changed while it runs.

    Attributes:
        ready: what `/readyz` says; off is an engine that loads or drains.
        delay: seconds before an answer begins.
        tokens: events of a stream.
        pause: seconds between them.
        hang_up: close the connection instead of answering.
        begun: requests whose head has arrived, and maybe no more of them.
        completed: answers that went out whole.
        aborted: answers whose reader went away.
        running: answers under way.
    """

    name: str
    host: str
    port: int
    ops_port: int
    internal_key: str = "internal"
    ready: bool = True
    delay: float = 0.0
    tokens: int = 5
    pause: float = 0.0
    hang_up: bool = False
    begun: int = 0
    completed: int = 0
    aborted: int = 0
    running: int = 0
    seen: list[Seen] = field(default_factory=list)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> None:
        """Open both ports."""
        for port, answer in ((self.port, self._answer), (self.ops_port, self._answer_ops)):

            async def serve(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                answer: Any = answer,
            ) -> None:
                await self._serve(reader, writer, answer)

            server = await asyncio.start_server(serve, self.host, port, backlog=2048, limit=2**20)
            self._servers.append(server)

    async def stop(self) -> None:
        """Die as a killed pod does: no more listening, every connection reset."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for writer in list(self._writers):
            writer.transport.abort()
        while self._writers:
            await asyncio.sleep(0.01)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Any
    ) -> None:
        self._writers.add(writer)
        try:
            while head := await _read_head(reader):
                await answer(head, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            with contextlib.suppress(ConnectionError):
                writer.close()

    async def _answer_ops(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        seen = await _read_request(head, reader)
        if seen.path != "/readyz":
            await _send_json(writer, 404, {})
        else:
            await _send_json(writer, 200 if self.ready else 503, {"ready": self.ready})

    async def _answer(
        self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.begun += 1
        seen = await _read_request(head, reader)
        self.seen.append(seen)
        if seen.values("authorization") != [f"Bearer {self.internal_key}"]:
            await _send_json(writer, 401, {"error": "not my router"})
            return
        self.running += 1
        try:
            await asyncio.sleep(self.delay)
            if self.hang_up:
                raise ConnectionResetError("told to")
            if seen.json.get("stream"):
                await self._stream(writer)
            else:
                await _send_json(writer, 200, self._content(seen))
            self.completed += 1
        except ConnectionError:
            self.aborted += 1
            raise
        finally:
            self.running -= 1

    def _content(self, seen: Seen) -> dict[str, Any]:
        if seen.path == "/v1/models":
            return {"object": "list", "data": [{"id": "stub", "object": "model"}]}
        message = {"role": "assistant", "content": self.name}
        return {
            "id": "chatcmpl-stub",
            "object": "chat.completion",
            "created": 0,
            "model": "stub",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "body_bytes": len(seen.body),
        }

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_ANSWER)
        async for event in self._events():
            data = f"data: {event}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _events(self) -> AsyncIterator[str]:
        for index in range(self.tokens):
            delta = {"index": 0, "delta": {"content": f"{index} "}}
            yield json.dumps({"object": "chat.completion.chunk", "choices": [delta]})
            await asyncio.sleep(self.pause)
        yield "[DONE]"


async def _read_head(reader: asyncio.StreamReader) -> str:
    """Start line and headers; empty at the end of the connection."""
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return ""


async def _read_request(head: str, reader: asyncio.StreamReader) -> Seen:
    start, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    method, path, _ = start.split(" ")
    headers = [(key.lower(), value.strip()) for key, _, value in (x.partition(":") for x in lines)]
    fields = dict(headers)
    if fields.get("transfer-encoding") == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(fields.get("content-length", 0)))
    return Seen(method, path, headers, body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


async def _send_json(writer: asyncio.StreamWriter, status: int, content: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    head = JSON_ANSWER.format(status=status, reason=REASONS[status], length=len(body))
    writer.write(head.encode() + body)
    await writer.drain()


async def _main() -> None:
    parser = argparse.ArgumentParser(description="Run one stub engine.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--ops-port", type=int, default=8001)
    options = parser.parse_args()
    engine = StubEngine("stub", options.host, options.port, options.ops_port)
    await engine.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())

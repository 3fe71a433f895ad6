"""The layer of states over an engine on paper, asked over HTTP without a socket."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from paper_engine import KEY, PaperEngine, environment

from rwkv_server.states.runtime import Keys, Runtime, make_runtime
from rwkv_server.states.web.layer import StateLayer
from rwkv_server.vllm_chat_compat import ChatRoutes

API_KEY = "internal"


@dataclass
class PaperServer:
    """One pod."""

    engine: PaperEngine
    runtime: Runtime
    client: httpx.AsyncClient

    async def post(self, path: str, **body: Any) -> httpx.Response:
        headers = body.pop("headers", {})
        return await self.client.post(path, json={"model": "chat", **body}, headers=headers)

    async def complete(self, prompt: Any, state: Any = None, **body: Any) -> dict[str, Any]:
        wish = {} if state is None else {"state": state}
        answer = await self.post("/v1/completions", prompt=prompt, **wish, **body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def chat(self, said: Any, state: Any = None, **body: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
        wish = {} if state is None else {"state": state}
        answer = await self.post("/v1/chat/completions", messages=messages, **wish, **body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def stream(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """All chunks; the end of the stream is checked."""
        answer = await self.post(path, stream=True, **body)
        assert answer.status_code == 200, answer.text
        *events, last, rest = answer.text.split("\n\n")
        assert (last, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]


class Wire(httpx.AsyncBaseTransport):
    """The network between pods; one that isn't on it can't be reached."""

    def __init__(self, others: dict[int, httpx.AsyncClient]) -> None:
        self._others = others

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        other = self._others.get(int(request.url.host.rpartition(".")[2]))
        if other is None:
            raise httpx.ConnectError("no such pod", request=request)
        answer = await other.request(
            request.method,
            request.url.raw_path.decode(),
            content=await request.aread(),
            headers=request.headers,
        )
        return httpx.Response(answer.status_code, content=answer.content)


@contextlib.asynccontextmanager
async def serve(
    folder: Path,
    ordinal: int = 0,
    others: dict[int, httpx.AsyncClient] | None = None,
    **fields: Any,
) -> AsyncIterator[PaperServer]:
    """A pod with an empty memory; its store is what `folder` has.

    Args:
        folder: the pod's own.
        ordinal: its number.
        others: clients of other pods, by their numbers; may be filled later.
        fields: of the settings' state, and of the engine; `old` for one as vLLM 0.18 is.
    """
    options = {
        name: fields.pop(name) for name in ("ahead", "limit", "old", "deaf") if name in fields
    }
    chats = ChatRoutes(take_tokens=not options.get("old", False))
    told = environment(folder, ordinal, **{"automaticReuse": "Off", **fields})
    peers = httpx.AsyncClient(transport=Wire({} if others is None else others))
    runtime = await make_runtime(told, Keys(KEY, API_KEY), chats, peers)
    engine = PaperEngine(told, **options)

    async def start() -> Runtime:
        return runtime

    transport = httpx.ASGITransport(StateLayer(engine, start))
    headers = {"authorization": f"Bearer {API_KEY}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://engine", headers=headers
    ) as client:
        try:
            yield PaperServer(engine, runtime, client)
        finally:
            await engine.close()
            await runtime.close()


@contextlib.asynccontextmanager
async def serve_all(
    *folders: Path, **fields: Any
) -> AsyncIterator[tuple[list[PaperServer], dict[int, httpx.AsyncClient]]]:
    """A pod for each folder, as `serve`, that reach each other by the clients beside them."""
    wire: dict[int, httpx.AsyncClient] = {}
    async with contextlib.AsyncExitStack() as stack:
        pods = []
        for ordinal, folder in enumerate(folders):
            folder.mkdir(exist_ok=True)
            pods.append(await stack.enter_async_context(serve(folder, ordinal, wire, **fields)))
            wire[ordinal] = pods[ordinal].client
        yield pods, wire

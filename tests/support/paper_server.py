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

from rwkv_server.states.runtime import Runtime, make_runtime
from rwkv_server.states.web.layer import StateLayer

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


@contextlib.asynccontextmanager
async def serve(folder: Path, ordinal: int = 0, **fields: Any) -> AsyncIterator[PaperServer]:
    """A pod with an empty memory; its store is what `folder` has."""
    options = {name: fields.pop(name) for name in ("ahead", "limit") if name in fields}
    takes_tokens = fields.pop("takes_tokens", True)
    told = environment(folder, ordinal, **{"automaticReuse": "Off", **fields})
    runtime = await make_runtime(told, KEY, API_KEY, takes_tokens)
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

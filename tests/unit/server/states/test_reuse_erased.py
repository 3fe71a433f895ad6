"""Beginnings of prompts in the store: none of what isn't kept, or can be erased by its name, or
isn't finite."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import paper_server
import pytest
from paper_server import PaperServer

DURABLE: dict[str, Any] = {"automaticReuse": "Durable", "store": "persistentVolumeClaim"}


@pytest.fixture
async def server(tmp_path: Path) -> Any:
    async with paper_server.serve(tmp_path, **DURABLE) as server:
        await server.client.get("/v1/states")
        yield server


async def stored(server: PaperServer) -> list[dict[str, Any]]:
    """All states in the store, after everything that is written behind."""
    assert server.runtime.behind is not None
    await server.runtime.turns.settle_all("default")
    await server.runtime.behind.flush()
    return list((await server.client.get("/v1/states")).json()["data"])


async def test_a_response_that_isnt_stored_leaves_nothing(server: PaperServer) -> None:
    answer = await server.post("/v1/responses", input="secret two", store=False)
    assert answer.json()["store"] is False
    assert await stored(server) == []
    await server.post("/v1/responses", input="secret two, and more", store=False)
    assert await stored(server) == []


@pytest.mark.parametrize("path", ["/v1/responses/{}", "/v1/states/{}"])
async def test_a_deleted_response_leaves_nothing(server: PaperServer, path: str) -> None:
    answer = await server.post("/v1/responses", input="a secret")
    assert [state["ref"] for state in await stored(server)] == [answer.json()["id"]]
    done = await server.client.delete(path.format(answer.json()["id"]))
    assert done.status_code == 200
    assert await stored(server) == []


async def test_a_deleted_state_leaves_nothing(server: PaperServer) -> None:
    for ask in (server.chat, server.complete):
        await ask("a secret", {"save": "mine"}, max_tokens=4)
        assert [state["ref"] for state in await stored(server)] == ["mine"]
        assert (await server.client.delete("/v1/states/mine")).status_code == 200
        assert await stored(server) == []


async def test_what_is_saved_is_still_reused_in_memory(server: PaperServer) -> None:
    said = {"role": "user", "content": "a secret"}
    await server.chat([said], {"save": True}, max_tokens=4)
    await stored(server)
    more = [said, {"role": "assistant", "content": "no"}, said]
    answer = await server.chat(more, max_tokens=4)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


async def test_chats_under_way_leave_nothing_after_an_erasure(server: PaperServer) -> None:
    server.engine.gate = asyncio.Event()
    chats = [asyncio.create_task(server.chat(f"secret {at}", max_tokens=3)) for at in range(3)]
    while len(server.engine.seen) < len(chats):
        await asyncio.sleep(0.001)
    assert (await server.client.delete("/v1/states?all=true")).status_code == 200
    server.engine.gate.set()
    for answer in await asyncio.gather(*chats):
        assert answer["choices"]
    assert await stored(server) == []
    await server.chat("no secret", max_tokens=3)
    assert len(await stored(server)) == 1


async def test_what_is_being_read_during_an_erasure_stays_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"role": "user", "content": "a secret"}
    async with paper_server.serve(tmp_path, **DURABLE) as server:
        await server.client.get("/v1/states")
        await server.chat([said], max_tokens=4)
        assert len(await stored(server)) == 1
    async with paper_server.serve(tmp_path, **DURABLE) as server:
        await server.client.get("/v1/states")
        read, begun, go_on = server.runtime.store.content, asyncio.Event(), asyncio.Event()

        async def slowly(record: Any) -> bytes:
            content = await read(record)
            begun.set()
            await go_on.wait()
            return content

        monkeypatch.setattr(server.runtime.store, "content", slowly)
        more = [said, {"role": "assistant", "content": "no"}, said]
        chat = asyncio.create_task(server.chat(more, max_tokens=4))
        await begun.wait()
        assert (await server.client.delete("/v1/states?all=true")).json()["states"] == 1
        go_on.set()
        await chat
        assert await stored(server) == []
        assert server.runtime.hot.use.kept == 0


async def test_what_isnt_finite_is_not_written(server: PaperServer) -> None:
    prefixes = server.runtime.prefixes
    assert prefixes is not None
    (slot,) = await server.runtime.hot.acquire(1, 0)
    slot.view[:4] = b"\x00\x00\xc0\x7f"
    prefixes.keep("default", [1, 2, 3], slot, None)
    assert await stored(server) == []

"""Prefixes in the store: written behind, found again by another engine, the older ones removed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import paper_server
import pytest
from paper_engine import PLACEHOLDER
from paper_server import PaperServer

from rwkv_server.states import reuse_durable
from rwkv_server.states.errors import StateStoreUnavailable


def chat(turns: int) -> list[dict[str, Any]]:
    """A chat whose last message is the user's."""
    told = [
        {"role": role, "content": f"{role} says {turn}"}
        for turn in range(turns)
        for role in ("user", "assistant")
    ]
    return told[:-1]


async def cached(server: PaperServer, turns: int) -> int:
    answer = await server.chat(chat(turns), max_tokens=4)
    details = answer["usage"].get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens", 0))


async def started(server: PaperServer) -> PaperServer:
    await server.client.get("/v1/states")
    return server


async def refs(server: PaperServer) -> list[dict[str, Any]]:
    listed = (await server.client.get("/v1/states")).json()
    return list(listed["data"])


async def flush(server: PaperServer) -> dict[str, int]:
    answer = await server.client.post("/internal/flush")
    return dict(answer.json())


@pytest.mark.parametrize("kind", ["perPod", "persistentVolumeClaim"])
async def test_another_process_goes_on_from_what_was_written(tmp_path: Path, kind: str) -> None:
    options: dict[str, Any] = {"automaticReuse": "Durable", "store": kind}
    async with paper_server.serve(tmp_path, **options) as server:
        await started(server)
        assert await cached(server, 1) == 0
        assert await cached(server, 2) > 0
        told = await flush(server)
        assert told["failed"] == 0
        assert server.runtime.behind is not None and server.runtime.behind.written == 2
    async with paper_server.serve(tmp_path, **options) as server:
        await started(server)
        found = await cached(server, 3)
        prompt = server.engine.prompts[-1]
        assert found > 0 and prompt[0] == PLACEHOLDER
    async with paper_server.serve(tmp_path, store=kind) as server:
        answer = await server.chat(chat(3), max_tokens=4)
    assert found < answer["usage"]["prompt_tokens"]


async def test_a_chat_keeps_its_last_two(tmp_path: Path) -> None:
    async with paper_server.serve(tmp_path, automaticReuse="Durable") as server:
        await started(server)
        for turns in range(1, 7):
            await cached(server, turns)
            await flush(server)
        records = await refs(server)
        assert len(records) == 2
        assert {record["finish_reason"] for record in records} == {"prompt"}


async def test_other_tenants_find_nothing(tmp_path: Path) -> None:
    async with paper_server.serve(tmp_path, automaticReuse="Durable") as server:
        await started(server)
        await cached(server, 1)
        await flush(server)
    async with paper_server.serve(tmp_path, automaticReuse="Durable") as server:
        await started(server)
        headers = {"x-rwkv-tenant": "eve"}
        answer = await server.chat(chat(2), max_tokens=4, headers=headers)
        assert "prompt_tokens_details" not in answer["usage"]
        assert await cached(server, 2) > 0


async def test_a_store_that_fails_costs_only_the_reuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        raise StateStoreUnavailable("down")

    async with paper_server.serve(tmp_path, automaticReuse="Durable") as server:
        await started(server)
        for name in ("put", "get", "content"):
            monkeypatch.setattr(server.runtime.store, name, refuse)
        assert await cached(server, 1) == 0
        assert (await flush(server))["failed"] == 1
        assert await cached(server, 2) > 0  # from memory


async def test_half_of_the_quota_stays_for_states_that_were_asked_for(tmp_path: Path) -> None:
    async with paper_server.serve(tmp_path, automaticReuse="Durable") as server:
        nbytes = server.runtime.layout.nbytes
    limits = {"maxBytesPerTenant": 6 * nbytes + 60_000}  # headers and records beside
    async with paper_server.serve(tmp_path, automaticReuse="Durable", **limits) as server:
        await started(server)
        for chat in range(8):
            await server.chat(f"question {chat}", max_tokens=4)
        told = await flush(server)
        assert (told["failed"], len(await refs(server))) == (0, 3)
        for text in ("one", "two", "three"):
            answer = await server.complete(text, {"save": True}, max_tokens=2)
            assert answer["state"]["ref"], answer


async def test_an_older_one_that_was_never_written_is_no_failure(tmp_path: Path) -> None:
    async with paper_server.serve(tmp_path, automaticReuse="Durable") as server:
        await started(server)
        await cached(server, 1)
        await flush(server)
        (record,) = await refs(server)
        await server.client.delete(f"/v1/states/{record['ref']}")
        for turns in (2, 3):
            await cached(server, turns)
        told = await flush(server)
        assert (told["failed"], told["onlyHere"]) == (0, 3)


async def test_a_drained_engine_leaves_all_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"automaticReuse": "Durable", "store": "persistentVolumeClaim"}
    async with (
        paper_server.serve(tmp_path, 0, **options) as drained,
        paper_server.serve(tmp_path, 1, **options) as other,
    ):
        await started(drained)
        await started(other)
        put, go_on = drained.runtime.store.put, asyncio.Event()

        async def later(*asked: Any) -> Any:
            await go_on.wait()
            return await put(*asked)

        monkeypatch.setattr(drained.runtime.store, "put", later)
        prompts = [f"question {number}, with some words. " for number in range(4)]
        for prompt in prompts:
            await drained.complete(prompt, max_tokens=4)
        assert await refs(other) == []
        flushing = asyncio.create_task(flush(drained))
        await asyncio.sleep(0.05)
        assert not flushing.done()
        go_on.set()
        assert await flushing == {"flushed": 4, "failed": 0, "onlyHere": 0}
        kept = {record["ref"] for record in await refs(other)}
        assert len(kept) == 4
        goes_on = set()
        for ref in kept:
            answer = await other.complete("More", {"ref": ref}, max_tokens=9)
            assert answer["state"]["source"] == "durable"
            goes_on.add(answer["choices"][0]["text"])
    async with paper_server.serve(tmp_path, 2) as plain:
        wanted = [await plain.complete(prompt + "More", max_tokens=9) for prompt in prompts]
    assert goes_on == {answer["choices"][0]["text"] for answer in wanted}


async def test_an_erased_session_has_left_nothing(tmp_path: Path) -> None:
    async with paper_server.serve(tmp_path, automaticReuse="Durable") as server:
        await started(server)
        for session in ("new", True):
            await server.chat("My name is Ada.", {"session": session}, session_id="s", max_tokens=4)
        await flush(server)
        assert (await server.client.delete("/v1/sessions/s")).status_code == 200
        assert await refs(server) == []


async def test_nothing_is_written_after_an_erasure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with paper_server.serve(tmp_path, automaticReuse="Durable") as server:
        await started(server)
        put, begun, go_on = server.runtime.store.put, asyncio.Event(), asyncio.Event()

        async def slowly(*asked: Any) -> Any:
            begun.set()
            await go_on.wait()
            return await put(*asked)

        monkeypatch.setattr(server.runtime.store, "put", slowly)
        for said in ("one", "two"):
            await server.chat(said, max_tokens=4)
        await begun.wait()
        erasing = asyncio.create_task(server.client.delete("/v1/states?all=true"))
        await asyncio.sleep(0.05)
        assert not erasing.done()
        go_on.set()
        assert (await erasing).status_code == 200
        await flush(server)
        assert await refs(server) == []


async def test_the_queue_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse_durable, "MOST_WAITING", 3)
    async with paper_server.serve(tmp_path, automaticReuse="Durable") as server:
        await started(server)
        behind, prefixes = server.runtime.behind, server.runtime.prefixes
        assert behind is not None and prefixes is not None
        for length in range(1, 9):
            behind.add("default", prefixes.name("default", range(length)), None)
        assert behind.failed == 5
        await behind.flush()


@pytest.mark.parametrize(
    ("tokens", "places"),
    [
        ([9, 1, 2, 3, 4, 9, 9, 1, 2, 3, 4], [5]),
        ([1, 2, 3, 4] * 4, [12, 8]),
        ([1, 2, 3, 4], []),
        ([4], []),
        ([5, 2, 3, 4, 7, 1, 2, 3, 4], []),
    ],
    ids=["once", "the last two", "none before", "short", "alike only in part"],
)
def test_places_where_a_reply_began(tokens: list[int], places: list[int]) -> None:
    assert reuse_durable.reply_places(tokens, 2) == places

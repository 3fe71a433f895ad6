"""Stock clients that resend everything: same answers, fewer tokens read, nothing of ours told."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import paper_server
import pytest
from paper_engine import PLACEHOLDER, decode, encode, render
from paper_server import PaperServer

from rwkv_server.states.reuse import PrefixIndex


@contextlib.asynccontextmanager
async def reusing(folder: Path, **fields: Any) -> AsyncIterator[PaperServer]:
    """A started engine."""
    async with paper_server.serve(folder, automaticReuse="Memory", **fields) as server:
        await server.client.get("/v1/states")
        yield server


@pytest.fixture(params=[False, True], ids=["", "as 0.18"])
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[PaperServer]:
    async with reusing(tmp_path, old=request.param) as server:
        yield server


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[PaperServer]:
    """The same engine with reuse off."""
    (tmp_path / "plain").mkdir()
    async with paper_server.serve(tmp_path / "plain") as server:
        yield server


def read_tokens(server: PaperServer) -> int:
    """Tokens of the last prompt that the engine had to read."""
    tokens = server.engine.prompts[-1]
    return len(tokens) - (tokens[0] == PLACEHOLDER)


async def converse(server: PaperServer, turns: int, **body: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    answers = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"question {turn}, with some words"})
        answer = await server.chat(messages, max_tokens=9, **body)
        messages.append(answer["choices"][0]["message"])
        answers.append(answer)
    return answers


async def test_every_turn_after_the_first_reads_its_own_tail(
    server: PaperServer, plain: PaperServer
) -> None:
    answers = await converse(server, 8)
    wanted = await converse(plain, 8)
    said = [one["choices"][0]["message"]["content"] for one in answers]
    assert said == [one["choices"][0]["message"]["content"] for one in wanted]
    assert [one["usage"]["prompt_tokens"] for one in answers] == [
        one["usage"]["prompt_tokens"] for one in wanted
    ]
    cached = [
        (one["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0) for one in answers
    ]
    lengths = [one["usage"]["prompt_tokens"] for one in wanted]
    assert cached == [0, *lengths[:-1]]
    assert read_tokens(server) == lengths[-1] - lengths[-2]
    for answer in answers:
        assert "state" not in answer and not answer.get("kv_transfer_params")


async def test_streams_tell_the_same_usage(server: PaperServer, plain: PaperServer) -> None:
    for one in (server, plain):
        await one.complete("once upon a time", max_tokens=2)
    asked: dict[str, Any] = {
        "prompt": "once upon a time there was",
        "stream_options": {"include_usage": True},
    }
    chunks = await server.stream("/v1/completions", **asked)
    wanted = await plain.stream("/v1/completions", **asked)
    usage = chunks.pop()["usage"]
    assert usage.pop("prompt_tokens_details") == {"cached_tokens": len(encode("once upon a time"))}
    assert usage == wanted.pop()["usage"]
    assert chunks == wanted


async def test_a_chat_is_bound_by_its_tail(tmp_path: Path) -> None:
    async with reusing(tmp_path, limit=120) as server:
        answers = await converse(server, 12)
    assert answers[-1]["usage"]["prompt_tokens"] > 3 * 120


@pytest.mark.parametrize(
    "body",
    [{"n": 2}, {"echo": True}, {"repetition_penalty": 1.2}, {"prompt_logprobs": 1}],
    ids=str,
)
async def test_what_looks_at_the_prompt_is_vllms_own(
    server: PaperServer, body: dict[str, Any]
) -> None:
    await server.complete("once upon", max_tokens=2)
    await server.complete("once upon a time", max_tokens=2, **body)
    assert server.engine.seen[-1]["prompt"] == "once upon a time"
    assert "kv_transfer_params" not in server.engine.seen[-1]


async def test_tenants_share_nothing(server: PaperServer) -> None:
    for tenant in ("ada", "eve"):
        headers = {"x-rwkv-tenant": tenant}
        await server.complete("once upon a time", max_tokens=2, headers=headers)
        await server.complete("once upon a time there", max_tokens=2, headers=headers)
        reads = [len(body["prompt"]) for body in server.engine.seen[-2:]]
        assert reads == [16, len(encode(" there")) + 1]


async def test_where_the_prompts_end_passes_what_comes_before_is_kept(
    server: PaperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def thinking(messages: Any, prompt: bool) -> str:
        return render(messages, prompt) + (" <think" if prompt else "")

    monkeypatch.setattr("paper_engine.render", thinking)
    answers = await converse(server, 4)
    cached = [
        (one["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0) for one in answers
    ]
    lengths = [one["usage"]["prompt_tokens"] for one in answers]
    end = len(encode("<think")) + 1
    assert cached == [0, *(length - end for length in lengths[:-1])]
    # The part before the passing end is read once, and each time from the turn before on.
    reads = [body["prompt"] for body in server.engine.seen if "prompt" in body]
    assert len(reads) == 4
    assert [len(read) for read in reads[1:]] == [
        after - before + 1 for before, after in itertools.pairwise(lengths)
    ]
    assert decode(server.engine.prompts[-1][1:]).endswith(" <think")


async def test_full_memory_is_not_waited_for(server: PaperServer) -> None:
    hot = server.runtime.hot
    taken = await hot.acquire(hot.count, 0)
    answer = await server.complete("once upon a time", max_tokens=2)
    assert answer["usage"]["prompt_tokens"] == 16
    for slot in taken:
        hot.release(slot)


async def test_a_client_that_leaves_holds_nothing(server: PaperServer) -> None:
    server.engine.gate = asyncio.Event()
    task = asyncio.create_task(server.complete("once upon a time", max_tokens=2))
    while not server.engine.seen:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    server.engine.gate.set()
    assert server.runtime.turns.open == 0
    assert server.runtime.hot.use.pinned == 0


async def test_whatever_goes_wrong_the_request_is_vllms_own(
    server: PaperServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise OverflowError("out of range")

    monkeypatch.setattr(PrefixIndex, "find", fail)
    await server.complete("once upon a time", max_tokens=2)
    assert server.engine.seen[-1]["prompt"] == "once upon a time"
    assert "kv_transfer_params" not in server.engine.seen[-1]
    assert "out of range" in caplog.text
    assert (server.runtime.turns.open, server.runtime.hot.use.pinned) == (0, 0)


async def test_a_chat_without_messages_is_vllms_own(server: PaperServer) -> None:
    await server.post("/v1/chat/completions", messages=[], max_tokens=2)
    assert server.engine.seen[-1]["messages"] == []


async def test_an_erased_tenant_begins_anew(server: PaperServer) -> None:
    await server.complete("once upon a time", max_tokens=2)
    erased = await server.client.delete("/v1/states?all=true")
    assert erased.status_code == 200, erased.text
    await server.complete("once upon a time there", max_tokens=2)
    assert len(server.engine.seen[-1]["prompt"]) == 22
    assert json.dumps(server.engine.seen[-1]).count("rwkv_signature") == 1

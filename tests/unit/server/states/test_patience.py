"""A store that hangs, for those who can do without it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import paper_server
import pytest
from paper_server import PaperServer

from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.patience import Patience

CHAT = [
    {"role": role, "content": f"{role} says {turn}"}
    for turn in range(3)
    for role in ("user", "assistant")
][:-1]


class Hanging:
    """Answers nobody until it's opened."""

    def __init__(self) -> None:
        self.calls = 0
        self.open = asyncio.Event()

    async def __call__(self, *_: Any) -> Any:
        self.calls += 1
        await self.open.wait()
        raise StateStoreUnavailable("too late")


@contextlib.asynccontextmanager
async def reusing(folder: Path) -> AsyncIterator[PaperServer]:
    async with paper_server.serve(folder, automaticReuse="Durable") as server:
        await server.client.get("/v1/states")
        yield server


async def test_who_was_let_down_does_not_ask_again_for_a_while() -> None:
    hanging, patience = Hanging(), Patience(0.01, 30)
    for _ in range(3):
        with pytest.raises(StateStoreUnavailable):
            await patience.ask(hanging)
    assert hanging.calls == 1
    await patience.close()


async def test_it_is_asked_again_later_and_a_late_answer_is_not_stopped() -> None:
    hanging, patience = Hanging(), Patience(0.01, 0)
    with pytest.raises(StateStoreUnavailable):
        await patience.ask(hanging)
    hanging.open.set()
    with pytest.raises(StateStoreUnavailable, match="too late"):
        await patience.ask(hanging)
    assert hanging.calls == 2
    assert await patience.ask(lambda: asyncio.sleep(0, "there")) == "there"


async def test_plain_chats_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with reusing(tmp_path) as server:
        hanging = Hanging()
        monkeypatch.setattr(server.runtime.store, "get", hanging)
        for _ in range(3):
            headers = {"x-rwkv-tenant": f"t{hanging.calls}"}
            assert (await server.chat(CHAT, max_tokens=4, headers=headers))["choices"]
        assert hanging.calls == 1


async def test_responses_that_nobody_insists_on_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reusing(tmp_path) as server:
        hanging = Hanging()
        monkeypatch.setattr(server.runtime.store.quota, "check", hanging)
        for _ in range(3):
            answer = await server.post("/v1/responses", input="Hi", max_tokens=4)
            assert answer.status_code == 200 and answer.json()["store"] is False
        assert hanging.calls == 1
        insisting = asyncio.create_task(server.post("/v1/responses", input="Hi", store=True))
        while hanging.calls == 1:
            await asyncio.sleep(0)
        hanging.open.set()
        assert (await insisting).status_code == 503

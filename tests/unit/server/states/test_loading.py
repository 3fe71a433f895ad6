"""A load that nobody waits for any more gives its room back when it is done with it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import state_stores

from rwkv_server.states import content
from rwkv_server.states.hot import HotTier
from rwkv_server.states.layout import StateLayout, TensorSpec
from rwkv_server.states.loading import Loader

LAYOUT = StateLayout((TensorSpec("layers.0.wkv", (4,), "float32", 0),), "float32", 1)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_cancelled_load_writes_into_nobody_elses_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    store = state_stores.store_on(state_stores.memory(), state_stores.Clock())
    file = content.to_safetensors(LAYOUT, memoryview(bytes(range(16))), {})
    record = await store.put(state_stores.make_record("r"), file)
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
    copy = content.from_safetensors

    def slowly(*asked: Any) -> Any:
        begun.set()
        assert go_on.wait(10)
        copy(*asked)
        done.set()

    monkeypatch.setattr(content, "from_safetensors", slowly)
    hot = HotTier(tmp_path / "hot", LAYOUT, 1)
    (room,) = await hot.acquire(1, 0)
    loading = asyncio.create_task(Loader(store, hot, LAYOUT, 0, None).load(record, room))
    await asyncio.to_thread(begun.wait, 10)
    for _ in range(times):
        loading.cancel()
        await asyncio.wait({loading}, timeout=0.05)
    early = loading.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await loading
    assert (early, done.is_set()) == (False, True)

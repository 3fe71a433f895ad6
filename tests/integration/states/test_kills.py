"""Processes that save states are killed at any moment: what they were told is there, and whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import state_writer
from state_stores import Clock, store_on, volume

from rwkv_server.states.store import layout
from rwkv_server.states.store.states import StateStore

SEED = 7


def kill_one(folder: Path, saves: int, after_s: float) -> list[str]:
    """What a writer was told to be saved; it is killed that much after so many saves."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, state_writer.__file__, str(folder)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        lines = [process.stdout.readline() for _ in range(saves)]
        time.sleep(after_s)
        process.kill()
        lines += process.stdout.readlines()
    assert process.returncode == -signal.SIGKILL
    # The last line may be half of one.
    return [line.split()[1] for line in lines if line.startswith("saved ") and line.endswith("\n")]


async def check(store: StateStore, told: list[str]) -> int:
    """How many states there are; each is whole, those told are among them, the head is one."""
    found, after = set(), None
    while True:
        page = await store.page("default", None, after, 500)
        for record in page.records:
            assert await store.content(record) == record.ref.encode() * 1000
            found.add(record.ref)
        after = page.after
        if after is None:
            break
    assert set(told) <= found
    head = await store.head("default", "s")
    if told:
        assert head is not None and head.ref in found
    return len(found)


@pytest.mark.parametrize("kills", [4, pytest.param(200, marks=pytest.mark.long)])
async def test_nothing_told_is_lost(kills: int, tmp_path: Path) -> None:
    draw, told = random.Random(SEED), []
    for _ in range(kills):
        told += kill_one(tmp_path, draw.randint(0, 4), draw.uniform(0, 0.02))
    assert len(told) >= kills
    clock = Clock()
    store = store_on(volume(tmp_path), clock)
    count = await check(store, told)
    clock.now += 4000
    await store.sweep(clock.now)
    assert await check(store, told) == count
    kept = [blob.key for blob in await store.blobs.list(layout.states("default"))]
    assert len(kept) == 2 * count, "a record and a snapshot each"
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()]

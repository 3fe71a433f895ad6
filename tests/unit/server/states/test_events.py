from __future__ import annotations

import asyncio
import json
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rwkv_server.states.events import Ended, EngineEvents

LINE = {
    "id": "a",
    "rank": 0,
    "status": "stopped",
    "consumed": 5,
    "tokens": [1, 2, 3, 4, 5],
    "saved": True,
    "prompt_saved": True,
    "failed": None,
}


@pytest.fixture
async def events(tmp_path: Path) -> AsyncIterator[EngineEvents]:
    server = EngineEvents(tmp_path / "socket", ranks=2)
    await server.start()
    yield server
    await server.close()


async def send(path: Path, *lines: dict[str, Any] | bytes) -> None:
    _, writer = await asyncio.open_unix_connection(path)
    for line in lines:
        writer.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
    writer.write_eof()
    await writer.drain()
    writer.close()


async def test_the_end_is_told_when_all_ranks_have_told_it(
    events: EngineEvents, tmp_path: Path
) -> None:
    events.expect("a")
    ended = asyncio.create_task(events.ended("a", 10))
    await send(tmp_path / "socket", LINE)
    done, _ = await asyncio.wait({ended}, timeout=0.05)
    assert not done
    await send(tmp_path / "socket", LINE | {"rank": 1, "tokens": [], "prompt_saved": False})
    assert await ended == Ended("stopped", 5, [1, 2, 3, 4, 5], True, False, None)


async def test_an_end_before_anybody_waits_is_kept(events: EngineEvents, tmp_path: Path) -> None:
    events.expect("a")
    events.expect("b")
    reason = "the slot is gone"
    lines = [LINE | {"rank": r, "id": i} for r in (1, 0) for i in "xba"]
    await send(tmp_path / "socket", *lines[:-1], lines[-1] | {"failed": reason})
    assert (await events.ended("b", 10)).failed is None
    assert (await events.ended("a", 10)).failed == reason


async def test_silence_is_an_end_too(events: EngineEvents, tmp_path: Path) -> None:
    events.expect("a")
    await send(tmp_path / "socket", LINE)
    ended = await events.ended("a", 0.1)
    assert (ended.status, ended.saved, ended.prompt_saved) == ("silent", False, False)
    assert ended.failed == "1 of 2 ranks told of its end within 0.1 s"


async def test_what_is_forgotten_is_not_waited_for(events: EngineEvents) -> None:
    events.expect("a")
    events.forget("a")
    events.forget("a")
    with pytest.raises(KeyError):
        await events.ended("a", 10)


@pytest.mark.parametrize("line", [b"{\n", b"[]\n", b"{}\n", b'{"id": "a"}\n', b"\xff\n"])
async def test_a_line_that_is_no_event_ends_its_connection_only(
    events: EngineEvents, tmp_path: Path, line: bytes
) -> None:
    events.expect("a")
    await send(tmp_path / "socket", line)
    await send(tmp_path / "socket", LINE, LINE | {"rank": 1})
    assert (await events.ended("a", 10)).saved


async def test_nobody_else_opens_the_socket(events: EngineEvents, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o600


async def test_a_socket_that_a_dead_process_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "socket"))
    server = EngineEvents(tmp_path / "socket", ranks=1)
    await server.start()
    server.expect("a")
    await send(tmp_path / "socket", LINE)
    assert (await server.ended("a", 10)).saved
    await server.close()
    assert not (tmp_path / "socket").exists()


async def test_a_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="longer than a socket's path may be"):
        await EngineEvents(tmp_path / ("x" * 108), ranks=1).start()

"""What the engine tells of requests that ended: a UNIX socket with one JSON line per rank and end.

Every rank sends its line after its copies, so when all have come the slots are complete. Whoever
sends a request calls `expect` before and then `ended`, or `forget` if the engine never saw it.
Connections come from this pod's own worker processes; nobody else can open the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A line has every token of a request.
_MOST_LINE = 64 << 20
# What a path of a UNIX socket may have, with its last byte.
_MOST_PATH = 107

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ended:
    """How a request ended in the engine.

    Attributes:
        status: vLLM's word: "stopped", "length_capped", "aborted", "error", …; "silent" if the
            engine told nothing in time.
        consumed: tokens that the final state has seen; a loaded state counts as one.
        tokens: all ids, prompt first.
        saved: whether the final state is in its slot, on all ranks.
        prompt_saved: whether the state after the prompt is in its slot, on all ranks.
        failed: why a state couldn't be loaded, if one couldn't.
    """

    status: str
    consumed: int
    tokens: list[int]
    saved: bool
    prompt_saved: bool
    failed: str | None


@dataclass
class _Pending:
    done: asyncio.Event = field(default_factory=asyncio.Event)
    lines: dict[int, dict[str, Any]] = field(default_factory=dict)


class EngineEvents:
    """The socket's server, in the API process."""

    def __init__(self, path: Path, ranks: int) -> None:
        """Tell where the socket is to be, and how many ranks the engine has."""
        self._path = path
        self._ranks = ranks
        self._pending: dict[str, _Pending] = {}
        self._server: asyncio.Server | None = None
        self._readers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen; workers connect with their first event."""
        if len(os.fsencode(self._path)) > _MOST_PATH:
            raise ValueError(f"{self._path} is longer than a socket's path may be")
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.fspath(self._path))
        self._path.chmod(0o600)  # before it listens
        self._server = await asyncio.start_unix_server(self._read, sock=listener, limit=_MOST_LINE)

    async def close(self) -> None:
        """Stop listening and end the connections."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._readers):
                writer.close()
            await self._server.wait_closed()
            self._path.unlink(missing_ok=True)

    def expect(self, request: str) -> None:
        """Remember what is told of this request from now on."""
        self._pending[request] = _Pending()

    def forget(self, request: str) -> None:
        """The engine never saw this request, or nobody cares any more."""
        self._pending.pop(request, None)

    async def ended(self, request: str, timeout_s: float) -> Ended:
        """Wait for all ranks to have told that an expected request ended."""
        pending = self._pending[request]
        try:
            await asyncio.wait_for(pending.done.wait(), timeout_s)
        except asyncio.TimeoutError:
            told = f"{len(pending.lines)} of {self._ranks} ranks told of its end"
            return Ended("silent", 0, [], False, False, f"{told} within {timeout_s:g} s")
        finally:
            self._pending.pop(request, None)
        return _merge(list(pending.lines.values()))

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._readers.add(writer)
        try:
            while line := await reader.readline():
                self._take(json.loads(line))
        except (ValueError, KeyError, TypeError, OSError):
            log.exception("an event of the engine can't be read; its connection ends")
        finally:
            self._readers.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _take(self, event: dict[str, Any]) -> None:
        pending = self._pending.get(event["id"])
        if pending is None:
            return
        pending.lines[event["rank"]] = event
        if len(pending.lines) == self._ranks:
            pending.done.set()


def _merge(events: list[dict[str, Any]]) -> Ended:
    first = next(event for event in events if event["rank"] == 0)
    return Ended(
        status=first["status"],
        consumed=first["consumed"],
        tokens=first["tokens"],
        saved=all(event["saved"] for event in events),
        prompt_saved=all(event["prompt_saved"] for event in events),
        failed=next((event["failed"] for event in events if event["failed"]), None),
    )

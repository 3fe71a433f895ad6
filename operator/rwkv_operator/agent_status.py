"""The agent's port: what is in force in this router, for the operator and the kubelet."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal

STALE_SECONDS: Final = 120.0
"""An agent that hasn't looked for that long is stuck; a reload may take half of it."""


Reason = Literal["Starting", "HAProxyUnreachable", "ConfigRefused", "InvalidAPIKeys"]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: for the operator, and for a person."""

    reason: Reason
    text: str


@dataclass(frozen=True)
class Status:
    """What the operator compares between routers and with what it wants.

    Attributes:
        config_hash: of the config that HAProxy runs; None while that isn't known.
        secret_hash: of the API keys in force; None with `auth.mode: Open` and until they are.
        problems: what is wrong, the worst first.
    """

    config_hash: str | None = None
    secret_hash: str | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def error(self) -> str | None:
        """All problems in one line."""
        return "; ".join(problem.text for problem in self.problems) or None

    def as_json(self) -> dict[str, Any]:
        """As it goes over the wire; `reason` is that of the worst problem."""
        return {
            "configHash": self.config_hash,
            "secretHash": self.secret_hash,
            "error": self.error,
            "reason": self.problems[0].reason if self.problems else None,
        }


class Board:
    """The newest status, and when it was written; shared by the loop and the port."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without any knowledge."""
        self._clock = clock
        self._latest = (Status(problems=(Problem("Starting", "the agent is starting"),)), clock())

    @property
    def status(self) -> Status:
        """The newest status."""
        return self._latest[0]

    @property
    def alive(self) -> bool:
        """Whether the loop still turns."""
        return self._clock() - self._latest[1] < STALE_SECONDS

    def write(self, status: Status) -> None:
        """Replace the status."""
        self._latest = (status, self._clock())


def serve(board: Board, address: tuple[str, int]) -> ThreadingHTTPServer:
    """Answer `/status` and `/livez` in threads of their own, until `shutdown`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, content = _answer(board, self.path)
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing: probes and the operator ask every few seconds."""

    server = ThreadingHTTPServer(address, Handler)
    threading.Thread(target=server.serve_forever, name="status", daemon=True).start()
    return server


def _answer(board: Board, path: str) -> tuple[int, dict[str, Any]]:
    if path == "/status":
        return 200, board.status.as_json()
    if path == "/livez":
        return (200, {"status": "ok"}) if board.alive else (503, {"status": "stuck"})
    return 404, {"status": "unknown path"}

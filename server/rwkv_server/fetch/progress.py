"""How far a fetch is: numbers for the operator on a small HTTP port, and a log line at times."""

from __future__ import annotations

import http.server
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Literal

from rwkv_server.errors import DownloadFailed

PORT = 8002
RATE_SECONDS = 10.0
LOG_SECONDS = 15.0

Phase = Literal["Resolving", "Waiting", "Downloading", "Verifying", "Converting"]

log = logging.getLogger(__name__)


class Progress:
    """The numbers of one fetch; written by its thread, read by the port's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing done, nothing known."""
        self._clock = clock
        self.phase: Phase = "Resolving"
        self.message = "asking the hub"
        self.done = 0
        self.total: int | None = None
        self._percent: int | None = None
        self._marks: deque[tuple[float, int]] = deque()
        self._logged = clock()

    def enter(self, phase: Phase, message: str, percent: int | None = None) -> None:
        """Go on to `phase`; `percent` where bytes aren't what counts."""
        self.phase, self.message, self._percent = phase, message, percent

    def set_bytes(self, done: int, total: int | None) -> None:
        """Say where the count stands, without it counting as speed."""
        self.done, self.total = done, total
        self._marks.clear()

    def add(self, count: int) -> None:
        """`count` bytes more are there; fewer, if an answer started anew."""
        self.done += count
        now = self._clock()
        self._marks.append((now, count))
        while self._marks and self._marks[0][0] < now - RATE_SECONDS:
            self._marks.popleft()
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            shown = self.render()
            log.info("%s: %s %%, %d bytes/s", self.message, shown["percent"], shown["rate"])

    @property
    def rate(self) -> int:
        """Bytes per second, over the last seconds."""
        now = self._clock()
        marks = [mark for mark in list(self._marks) if mark[0] >= now - RATE_SECONDS]
        if not marks:
            return 0
        return max(0, int(sum(count for _, count in marks) / max(1.0, now - marks[0][0])))

    def render(self) -> dict[str, Any]:
        """The body of /progress."""
        # Read once: the fetch's thread goes on counting meanwhile.
        percent, done, total = self._percent, self.done, self.total
        if percent is None and total:
            percent = min(100, done * 100 // total)
        return {
            "phase": self.phase,
            "message": self.message,
            "percent": percent,
            "bytes": done,
            "total": total,
            "rate": self.rate,
        }


def serve(progress: Progress, port: int) -> http.server.ThreadingHTTPServer:
    """Answer GET /progress on all addresses, from a thread that ends with the process.

    Raises:
        DownloadFailed: the port is taken.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            body = json.dumps(progress.render()).encode()
            known = self.path == "/progress"
            self.send_response(HTTPStatus.OK if known else HTTPStatus.NOT_FOUND)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body) if known else 0))
            self.end_headers()
            if known:
                self.wfile.write(body)

        def log_message(self, *parts: object) -> None:
            """Requests aren't logged."""

    try:
        server = http.server.ThreadingHTTPServer(("", port), Handler)
    except OSError as error:
        raise DownloadFailed(f"port {port} can't be opened: {error.strerror}") from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server

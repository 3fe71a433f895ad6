"""A thread that ends copies and tells the API process of requests that ended, in their order.

What can't be told is dropped with a line in the log: the API process then hears nothing in time and
counts the state as not saved.
"""

from __future__ import annotations

import json
import logging
import queue
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TIMEOUT_S = 10.0
_END_S = 5.0

log = logging.getLogger(__name__)


class Sender:
    """One connection to the API process, made with the first event."""

    def __init__(self, path: Path) -> None:
        """Tell where the socket is."""
        self._path = path
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None

    def put(self, job: Callable[[], None]) -> None:
        """Have the thread run `job` after all earlier ones."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rwkv-states", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def send(self, event: dict[str, Any]) -> None:
        """Send one line; inside a job."""
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        try:
            self._write(line)
        except OSError as error:
            self._hang_up()
            log.warning("the end of %s can't be told: %s: %s", event["id"], self._path, error)

    def close(self) -> None:
        """End the thread after its last job."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(_END_S)
            self._thread = None
        self._hang_up()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("a snapshot's copy can't be ended")

    def _write(self, line: bytes) -> None:
        if self._socket is not None:
            try:
                self._socket.sendall(line)
                return
            except OSError:  # another API process may listen there by now
                self._hang_up()
        fresh = socket.socket(socket.AF_UNIX)
        fresh.settimeout(_TIMEOUT_S)
        self._socket = fresh
        fresh.connect(str(self._path))
        fresh.sendall(line)

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

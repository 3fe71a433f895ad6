"""Threads that end copies and tell the API process of requests that ended, in their order.

They are two, because copies hold buffers that the engine's next step may wait for, while the API
process may be slow to listen. What can't be told is dropped with a line in the log: the API process
then hears nothing in time and counts the state as not saved.
"""

from __future__ import annotations

import json
import logging
import queue
import select
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

_TIMEOUT_S = 10.0
_END_S = 5.0

log = logging.getLogger(__name__)


class _Thread:
    """Runs jobs one after another; begins with the first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, job: Callable[[], None]) -> None:
        """Have `job` run after all earlier ones."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def close(self) -> None:
        """End after the last job."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(_END_S)
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("%s: a job failed", self._name)


class Sender:
    """One connection to the API process, made with the first event."""

    def __init__(self, path: Path) -> None:
        """Tell where the socket is."""
        self._path = path
        self._ending, self._telling = _Thread("rwkv-states"), _Thread("rwkv-states-tell")
        self._socket: socket.socket | None = None
        # Lines for the other thread, and those it has done; each is counted by one thread only.
        self._late = self._told = 0

    def put(self, job: Callable[[], None]) -> None:
        """Have `job` end a copy after all earlier ones."""
        self._ending.put(job)

    def send(self, event: dict[str, Any]) -> None:
        """Send one line after all earlier ones; inside a job, which waits for nobody to listen."""
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        sent = self._try(line)
        if sent < len(line):
            self._late += 1
            self._telling.put(partial(self._tell, event["id"], line, sent))

    def _try(self, line: bytes) -> int:
        """Send what the socket takes at once: to have the other thread do it costs milliseconds."""
        if self._socket is None or self._told < self._late:
            return 0
        try:
            look = select.poll()
            look.register(self._socket, select.POLLOUT)
            return self._socket.send(line) if look.poll(0) else 0
        except OSError:
            return 0  # the other thread finds out

    def close(self) -> None:
        """End after the last job and the last line."""
        self._ending.close()
        self._telling.close()
        self._hang_up()

    def _tell(self, name: str, line: bytes, sent: int) -> None:
        try:
            self._write(line, sent)
        except OSError as error:
            self._hang_up()
            log.warning("the end of %s can't be told: %s: %s", name, self._path, error)
        finally:
            self._told += 1

    def _write(self, line: bytes, sent: int) -> None:
        if self._socket is not None:
            try:
                self._socket.sendall(line[sent:])
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

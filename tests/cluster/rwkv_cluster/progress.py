"""Progress as the user sees it: one line for each step, with the seconds that it took.

Only prints; nothing here decides anything.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class Progress:
    """Prints steps to a stream and remembers how long each took.

    Args:
        stream: Where lines go; None keeps quiet.
        heartbeat_seconds: How often a long step says that it is still at it.
    """

    def __init__(self, stream: TextIO | None = sys.stderr, heartbeat_seconds: float = 15) -> None:
        self._stream = stream
        self._heartbeat = heartbeat_seconds
        self._began = time.monotonic()
        self.seconds: dict[str, float] = {}

    def say(self, text: str) -> None:
        """Print one line, with the seconds since the beginning in front."""
        if self._stream is not None:
            elapsed = time.monotonic() - self._began
            print(f"[{elapsed:6.1f}s] {text}", file=self._stream, flush=True)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Time a block; print it when done, and in between while it takes long."""
        began = time.monotonic()
        done = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(what, began, done), daemon=True)
        ticker.start()
        try:
            yield
        finally:
            done.set()
            ticker.join()
        self.seconds[what] = time.monotonic() - began
        self.say(f"{what}: {self.seconds[what]:.1f} s")

    def _tick(self, what: str, began: float, done: threading.Event) -> None:
        while not done.wait(self._heartbeat):
            self.say(f"{what}: still at it after {time.monotonic() - began:.0f} s")

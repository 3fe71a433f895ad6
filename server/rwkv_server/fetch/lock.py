"""One downloader per model, among pods that share nothing but a volume.

flock isn't enough: some network volumes grant it to everyone. Creating a file that must not exist
is refused to all but one everywhere. So claims are numbered files, `<n>.json` for the n-th holder,
made create-only; the highest number holds the lock. Its holder rewrites it every few seconds. A
waiter that sees the same content for STALE_SECONDS by its own clock makes claim n+1; of several
waiters one succeeds. A holder that finds a higher number, or couldn't write for STALE_SECONDS, has
lost the lock and stops. No clocks are compared between machines. Claims are rewritten in place and
closed each time: that is what network volumes show to the next one who opens, where a renamed file
may stay hidden for a minute, and it works on a full volume.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

BEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
POLL_SECONDS = 1.0
CLAIM_BYTES = 1024


class LockLost(Exception):
    """Another pod took the lock over, because this one was too slow to say that it lives."""


@dataclass(frozen=True)
class Timing:
    """Seconds between beats and looks, and after how many without a beat a holder is dead."""

    beat: float = BEAT_SECONDS
    stale: float = STALE_SECONDS
    poll: float = POLL_SECONDS


class Lock:
    """The lock in `folder` for `owner`, a pod's name; use `acquire`, then as a context manager."""

    def __init__(self, folder: Path, owner: str, timing: Timing | None = None) -> None:
        """Claim nothing yet."""
        self._folder = folder
        self._owner = owner
        self._timing = timing or Timing()
        self._token = uuid.uuid4().hex
        self._number = 0
        self._beats = 0
        self._note: dict[str, int] = {}
        self._ended = threading.Event()
        self._lost = threading.Event()
        self._beaten = time.monotonic()
        self._thread: threading.Thread | None = None

    def acquire(
        self,
        is_done: Callable[[], bool],
        on_wait: Callable[[str, dict[str, Any]], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> bool:
        """Wait for the lock; False if `is_done` became true meanwhile, so that nobody needs it.

        Args:
            is_done: asked at every look.
            on_wait: hears the holder's name and its last note at every look.
            clock: monotonic seconds.
            sleep: how to wait.
        """
        seen: tuple[int, bytes] | None = None
        since = clock()
        while not is_done():
            # The holder may take the folder away at any moment, once it has finished.
            with contextlib.suppress(FileExistsError):
                self._folder.mkdir(parents=True, exist_ok=True)
            number, content = self._highest()
            if (number, content) != seen:
                seen, since = (number, content), clock()
            free = number == 0 or self._is_free(content, clock() - since)
            if free and self._claim(number + 1):
                return True
            claim = _parse(content)
            on_wait(str(claim.get("owner", "another pod")), claim.get("note") or {})
            sleep(self._timing.poll)
        return False

    def note(self, **facts: int) -> None:
        """Have waiters told these numbers with the next beat."""
        self._note = facts

    def check(self) -> None:
        """Raise LockLost if another pod has taken over, or may have by now."""
        if self._lost.is_set():
            raise LockLost(f"{self._folder} was taken over by another pod")
        silent = time.monotonic() - self._beaten
        if silent >= self._timing.stale:
            raise LockLost(f"{self._folder} couldn't be written for {silent:.0f} s")

    def __enter__(self) -> Lock:
        """Start beating."""
        self._beaten = time.monotonic()
        self._thread = threading.Thread(target=self._beat_until_ended, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop beating and let the next one in."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if not self._lost.is_set():
            # On a volume in trouble others have to wait until the claim is stale.
            with contextlib.suppress(OSError):
                self._write(released=True)

    def remove(self) -> None:
        """Take the claims away, once what the lock guarded is finished."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._lost.set()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _highest(self) -> tuple[int, bytes]:
        try:
            numbers = [int(p.stem) for p in self._folder.glob("*.json") if p.stem.isdigit()]
        except FileNotFoundError:
            numbers = []
        if not numbers:
            return 0, b""
        highest = max(numbers)
        try:
            return highest, self._path(highest).read_bytes()
        except OSError:
            return highest, b"?"

    def _is_free(self, content: bytes, silent_seconds: float) -> bool:
        claim = _parse(content)
        # A pod's name is in use once: the claim is of this pod's earlier container.
        same_pod = claim.get("owner") == self._owner
        stale = silent_seconds >= self._timing.stale
        return bool(claim.get("released")) or same_pod or stale

    def _claim(self, number: int) -> bool:
        try:
            handle = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o664)
        except (FileExistsError, FileNotFoundError):
            return False
        with os.fdopen(handle, "wb") as file:
            file.write(self._content(released=False))
        self._number = number
        return True

    def _beat_until_ended(self) -> None:
        while not self._ended.wait(self._timing.beat):
            started = time.monotonic()
            try:
                if not self._is_ours():
                    self._lost.set()
                    return
                self._beats += 1
                self._write(released=False)
            except OSError:
                continue  # a volume in trouble: the download itself or `check` says so better
            self._beaten = started

    def _is_ours(self) -> bool:
        number, content = self._highest()
        return number == self._number and _parse(content).get("token") in (self._token, None)

    def _write(self, released: bool) -> None:
        try:
            handle = os.open(self._path(self._number), os.O_WRONLY)
        except FileNotFoundError:
            self._lost.set()
            return
        try:
            os.write(handle, self._content(released))
            os.fsync(handle)
        finally:
            os.close(handle)

    def _content(self, released: bool) -> bytes:
        facts = {
            "owner": self._owner,
            "token": self._token,
            "beat": self._beats,
            "released": released,
            "note": self._note,
        }
        # Always as long, so that what is written covers what was there.
        return json.dumps(facts).encode().ljust(CLAIM_BYTES)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.json"


def _parse(content: bytes) -> dict[str, Any]:
    try:
        claim = json.loads(content)
    except ValueError:
        return {}
    return claim if isinstance(claim, dict) else {}

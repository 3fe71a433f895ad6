"""The one queue that every event feeds: names of deployments that want a look.

A deployment is in it once, however many events there were, and is worked on by one worker at a
time. Nothing here knows kopf or the cluster.
"""

from __future__ import annotations

import asyncio
from typing import Final

from rwkv_operator.metrics import Metrics

Key = tuple[str, str]
"""Namespace and name of a deployment."""

COALESCE_SECONDS: Final = 0.2
"""Events of children come in bursts, most of them answers to our own writes."""


class WorkQueue:
    """Keys to work on, now or later. For one event loop."""

    def __init__(self, metrics: Metrics) -> None:
        """Start empty."""
        self._metrics = metrics
        self._urgent: dict[Key, None] = {}
        self._waiting: dict[Key, None] = {}
        self._running: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key, urgent: bool = False) -> None:
        """Ask for a look as soon as a worker is free; a look that is under way doesn't count.

        Args:
            key: which deployment.
            urgent: before those that aren't: the user has changed something.
        """
        self._cancel(key)
        if urgent:
            self._waiting.pop(key, None)
            self._urgent[key] = None
        elif key not in self._urgent:
            self._waiting[key] = None
        self._announce()

    def add_later(self, key: Key, seconds: float) -> None:
        """Ask for a look after some time, or sooner if one is due sooner."""
        if key in self._urgent or key in self._waiting:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= due:
            return
        self._cancel(key)
        self._timers[key] = loop.call_at(due, self.add, key)

    def knows(self, key: Key) -> bool:
        """Whether a look at the key is due, planned or under way."""
        return any(
            key in place for place in (self._urgent, self._waiting, self._running, self._timers)
        )

    async def take(self) -> Key:
        """The next key; it is this worker's until `done`."""
        while True:
            key = self._next()
            if key is not None:
                return key
            self._changed.clear()
            await self._changed.wait()

    def done(self, key: Key) -> None:
        """A worker has finished with a key."""
        self._running.discard(key)
        self._announce()

    def close(self) -> None:
        """Drop everything that was to be looked at later."""
        for key in list(self._timers):
            self._cancel(key)

    def _next(self) -> Key | None:
        for line in (self._urgent, self._waiting):
            for key in line:
                if key not in self._running:
                    del line[key]
                    self._running.add(key)
                    self._announce()
                    return key
        return None

    def _cancel(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _announce(self) -> None:
        self._metrics.queued.set(len(self._urgent) + len(self._waiting))
        self._changed.set()

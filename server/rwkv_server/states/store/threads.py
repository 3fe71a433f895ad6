"""Threads for calls that block, for as long as a network volume hangs. Knows nothing of stores.

They are daemons: the pool of the standard library waits for its threads when the program ends, and
would wait for a hanging volume for ever.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass
class _Job:
    """A call that waits for a thread; `work` is None once nobody wants it any more."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[object]
    work: Callable[[], object] | None


class Threads:
    """A fixed number of daemon threads, started when they are first needed."""

    def __init__(self, count: int) -> None:
        """Remember how many calls may block at the same time."""
        self._count = count
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._started = 0

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work()`, or its exception; given up calls that have not begun never do."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = _Job(loop, future, work)  # type: ignore[arg-type]
        self._jobs.put(job)
        if self._started < self._count:
            self._started += 1
            threading.Thread(target=self._serve, name="state-store", daemon=True).start()
        try:
            return await future
        finally:
            job.work = None  # what it would write isn't kept while it waits for a hanging volume

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            work = job.work
            if work is None:
                continue
            try:
                result, error = work(), None
            except BaseException as raised:
                result, error = None, raised
            try:
                job.loop.call_soon_threadsafe(_finish, job.future, result, error)
            except RuntimeError:
                pass  # the loop is closed: nobody waits any more
            del job, work, result, error


def _finish(future: asyncio.Future[object], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)

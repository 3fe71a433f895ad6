"""How long those wait for the store who can do without it.

Others, who were promised something, wait as long as the store itself does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rwkv_server.states.errors import StateStoreUnavailable

_T = TypeVar("_T")
WAIT_S = 1.0
PAUSE_S = 30.0


class Patience:
    """Bounds each wait; a store that let one down isn't asked again for a while."""

    def __init__(self, wait_s: float = WAIT_S, pause_s: float = PAUSE_S) -> None:
        """Nothing was asked yet."""
        self._wait_s, self._pause_s = wait_s, pause_s
        self._again_at = 0.0
        self._tasks: set[asyncio.Future[Any]] = set()

    async def ask(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """The call's answer. A call that isn't waited for any more still goes on.

        Raises:
            StateStoreUnavailable: there was none in time, or lately.
        """
        loop = asyncio.get_running_loop()
        if loop.time() < self._again_at:
            raise StateStoreUnavailable("the state store didn't answer lately", retry_after_s=1)
        task = asyncio.ensure_future(call())
        self._tasks.add(task)
        task.add_done_callback(self._look_at)
        done, _ = await asyncio.wait({task}, timeout=self._wait_s)
        try:
            if done:
                return task.result()
            raise StateStoreUnavailable(
                f"the state store didn't answer within {self._wait_s:g} s", retry_after_s=1
            )
        except StateStoreUnavailable:
            self.lose()
            raise

    def lose(self) -> None:
        """The store didn't answer somebody: ask for nothing for a while."""
        self._again_at = asyncio.get_running_loop().time() + self._pause_s

    async def close(self) -> None:
        """End what still goes on."""
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(set(self._tasks), timeout=0.1)

    def _look_at(self, task: asyncio.Future[Any]) -> None:
        """Errors of calls that were given up are nobody's."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

"""What a drain asks for before the server ends: that nothing is left to write."""

from __future__ import annotations

import asyncio

from rwkv_server.states.turns import Turns

_POLL_S = 0.05


class Flush:
    """Waits for turns under way; each writes its state before its answer ends."""

    def __init__(self, turns: Turns, shared: bool) -> None:
        """Tell whose turns, and whether other engines read the same store."""
        self._turns, self._shared = turns, shared

    async def __call__(self) -> dict[str, int]:
        """How many states were saved, how many couldn't be, and how many no other pod reads."""
        while self._turns.open:
            await asyncio.sleep(_POLL_S)
        only_here = 0 if self._shared else self._turns.saved
        return {"flushed": 0, "failed": self._turns.failed, "onlyHere": only_here}

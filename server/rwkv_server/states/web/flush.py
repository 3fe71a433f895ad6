"""What a drain asks for before the server ends: that nothing is left to write."""

from __future__ import annotations

import asyncio

from rwkv_server.states.reuse_durable import WriteBehind
from rwkv_server.states.turns import Turns

_POLL_S = 0.05


class Flush:
    """Waits for turns under way, each of which writes its state before its answer ends.

    What automatic reuse writes behind them comes after.
    """

    def __init__(self, turns: Turns, behind: WriteBehind | None, shared: bool) -> None:
        """Tell whose turns, and whether other engines read the same store."""
        self._turns, self._behind, self._shared = turns, behind, shared

    async def __call__(self) -> dict[str, int]:
        """How many states were saved, how many couldn't be, and how many no other pod reads."""
        while self._turns.open:
            await asyncio.sleep(_POLL_S)
        flushed, failed, saved = 0, self._turns.failed, self._turns.saved
        if self._behind is not None:
            flushed = await self._behind.flush()
            failed += self._behind.failed
            saved += self._behind.written
        return {"flushed": flushed, "failed": failed, "onlyHere": 0 if self._shared else saved}

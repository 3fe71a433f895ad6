"""Reuse that nobody asked for: a turn begins with what an earlier prompt of the tenant has left.

Part of `turns`, which loads, copies and gives back. Memory that isn't free is not waited for: the
prompt is read whole then, or leaves nothing. Nor is all of it taken: half stays for those who ask
for states, and have to wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from rwkv_server.states import counters
from rwkv_server.states.errors import StateBusy
from rwkv_server.states.events import Ended
from rwkv_server.states.frame import frame_reused
from rwkv_server.states.hot import HotTier
from rwkv_server.states.prefixes import Prefixes
from rwkv_server.states.turn import Turn

# An answer is out before the engine has told of its snapshot; a next turn may come faster.
SETTLE_S = 2.0


class Automatic:
    """What turns do with snapshots of beginnings.

    Attributes:
        fetch: brings what may stand for a text's beginning to memory, where there is a store of it.
    """

    def __init__(self, prefixes: Prefixes, hot: HotTier, placeholder: int) -> None:
        """Take the snapshots, the memory, and the token that stands for one."""
        self._prefixes, self._hot, self._placeholder = prefixes, hot, placeholder
        self._coming: dict[str, tuple[Turn, asyncio.Event]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.fetch: Callable[[str, Sequence[int]], Awaitable[None]] | None = None

    async def settle(self, turn: Turn, tokens: Sequence[int]) -> None:
        """Note the turn's text, and wait a moment for the turn before it.

        A text that goes on from a state isn't whole: nobody knows its beginning's tokens.
        """
        if turn.parent is not None or not (turn.wish.reuse or turn.wish.remember):
            return
        turn.whole = tuple(tokens)
        waiting = [
            settled.wait()
            for before, settled in self._coming.values()
            if turn.wish.reuse
            and before.wish.tenant == turn.wish.tenant
            and len(before.whole) < len(turn.whole)
            and turn.whole[: len(before.whole)] == before.whole
        ]
        if waiting:
            try:
                await asyncio.wait_for(asyncio.gather(*waiting), SETTLE_S)
            except asyncio.TimeoutError:
                pass
        if self.fetch is not None and turn.wish.reuse:
            await self.fetch(turn.wish.tenant, turn.whole)

    async def settle_all(self, tenant: str) -> None:
        """Wait a moment for all turns of a tenant whose answers are complete."""
        coming = [
            asyncio.ensure_future(settled.wait())
            for turn, settled in self._coming.values()
            if turn.wish.tenant == tenant
        ]
        if coming:
            _, late = await asyncio.wait(coming, timeout=SETTLE_S)
            for one in late:
                one.cancel()

    def find(self, turn: Turn) -> None:
        """Let a snapshot stand for the beginning of the turn's text, if there is one."""
        if not turn.whole or not turn.wish.reuse or not self._may_pin():
            return
        found = self._prefixes.find(turn.wish.tenant, turn.whole)
        counters.prefixes.labels("miss" if found is None else "hit").inc()
        if found is not None:
            turn.found, turn.load = found, found.slot
            turn.frame = frame_reused(self._placeholder, found.length, turn.whole)

    def remembers(self, tenant: str, tokens: Sequence[int]) -> bool:
        """Whether there is a snapshot of exactly this text."""
        return self._prefixes.has(tenant, tokens)

    async def make_room(self, turn: Turn) -> None:
        """Have the turn's prompt leave a snapshot, if memory is free."""
        if turn.whole and turn.wish.remember and turn.prompt is None:
            try:
                if self._may_pin():
                    (turn.prompt,) = await self._hot.acquire(1, 0)
            except StateBusy:
                pass
            if turn.prompt is None:
                counters.prefixes.labels("no_room").inc()

    def _may_pin(self) -> bool:
        """Whether half of the memory would still be free, or could be made so."""
        return 2 * self._hot.use.pinned < self._hot.count

    def remember_later(
        self,
        turn: Turn,
        ended: Callable[[Turn], Awaitable[Ended]],
        give_back: Callable[[Turn], Awaitable[None]],
    ) -> None:
        """Remember a turn whose answer is complete, as soon as the engine has told of its end."""

        async def wait() -> None:
            told = None
            try:
                told = await ended(turn)
            finally:
                self.remember(turn, told)
                await give_back(turn)

        self._coming[turn.id] = (turn, asyncio.Event())
        task = asyncio.create_task(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def remember(self, turn: Turn, ended: Ended | None) -> None:
        """Keep the snapshot of the turn's prompt, if the engine has made it."""
        wish = turn.wish
        if turn.whole and wish.remember and turn.prompt is not None and not turn.erased:
            if ended is not None and _has_read(ended, turn):
                slot, turn.prompt = turn.prompt, None
                self._prefixes.keep(wish.tenant, turn.whole, slot, turn.found, durable=wish.durable)
        coming = self._coming.pop(turn.id, None)
        if coming is not None:
            coming[1].set()


def _has_read(ended: Ended, turn: Turn) -> bool:
    """Whether the engine made a snapshot of this prompt, and of no other."""
    prompt = turn.frame.tokens
    return ended.prompt_saved and not ended.failed and tuple(ended.tokens[: len(prompt)]) == prompt

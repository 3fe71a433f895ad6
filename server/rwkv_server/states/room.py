"""The memory of turns: what each holds from its beginning to its end. No store, no sessions."""

from __future__ import annotations

from rwkv_server.states import counters
from rwkv_server.states.automatic import Automatic
from rwkv_server.states.hot import HotTier, Slot
from rwkv_server.states.loading import Loader
from rwkv_server.states.turn import Turn

# How long a request waits for memory.
WAIT_S = 30.0


class Room:
    """Slots to load from and to save to."""

    def __init__(self, hot: HotTier, loader: Loader, automatic: Automatic | None) -> None:
        """Take what has the slots, what fills them, and what reuses them if anything does."""
        self._hot, self._loader, self._automatic = hot, loader, automatic

    async def take(self, turn: Turn) -> None:
        """Reserve all memory that the turn needs, then load what it goes on from.

        Raises:
            StateError: of any kind; `give_back` what is held all the same.
        """
        room = await self._reserve(turn)
        if turn.parent is None:
            return
        if room is not None:
            turn.load = room
            loaded = await self._loader.load(turn.parent, room)
            turn.load, turn.source = loaded.slot, loaded.source
        counters.resumes.labels(turn.source).inc()

    async def _reserve(self, turn: Turn) -> Slot | None:
        """Pin the parent's snapshot and the slots to save to; a slot for what has to be loaded.

        Who waits for memory holds none meanwhile: two that each held a part of what they need would
        wait for each other. So there is room for the parent, too, until it turns out to be here.
        """
        parent, saves = turn.parent, turn.wish.save
        if parent is not None and saves:
            self._loader.touch(parent)
        elif parent is not None:
            turn.load = self._loader.find(parent)
        loads = parent is not None and turn.load is None
        count = (2 if saves else 0) + (1 if loads else 0)
        slots = await self._hot.acquire(count, WAIT_S) if count else []
        if saves:
            turn.save, turn.prompt = slots.pop(), slots.pop()
        if parent is None and self._automatic is not None:
            self._automatic.find(turn)
            await self._automatic.make_room(turn)
        if parent is not None and turn.load is None:
            turn.load = self._loader.find(parent)
            if turn.load is not None:
                self._hot.release(slots.pop())
        if parent is not None and turn.load is not None:
            turn.source = "hot"
        return slots.pop() if slots else None

    def keep(self, turn: Turn, key: str, slot: Slot) -> None:
        """Leave one of the turn's slots under a key for whoever goes on from it."""
        self._hot.keep(key, slot)
        if slot is turn.save:
            turn.save = None
        else:
            turn.prompt = None

    def give_back(self, turn: Turn) -> None:
        """All that the turn still holds."""
        if turn.load is not None:
            self._hot.unpin(turn.load)
        for slot in filter(None, (turn.save, turn.prompt)):
            self._hot.release(slot)
        turn.load = turn.save = turn.prompt = None

"""From a slot to the store: a few snapshots at a time, each of which is a copy of its slot.

Of many turns that end in the same step the first are committed and answered while the others wait.
More at once would only hold more copies: the store has no more threads than this.
"""

from __future__ import annotations

import asyncio

from rwkv_server.states import content
from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.hot import Slot
from rwkv_server.states.layout import StateLayout
from rwkv_server.states.ports import Store
from rwkv_server.states.record import Record

AT_ONCE = 8
WAIT_S = 30.0
RECORD_KEY = "rwkv_record"


class Commits:
    """Writes what turns have saved."""

    def __init__(self, store: Store, layout: StateLayout, wait_s: float = WAIT_S) -> None:
        """Write to `store`; who has waited for others so long is refused."""
        self._store, self._layout, self._wait_s = store, layout, wait_s
        self._places = asyncio.Semaphore(AT_ONCE)

    async def write(self, record: Record, slot: Slot) -> Record:
        """Commit a slot's snapshot with its record; as `Store.put`.

        Raises:
            StateStoreUnavailable: others before it took too long, too.
        """
        try:
            await asyncio.wait_for(self._places.acquire(), self._wait_s)
        except asyncio.TimeoutError:
            raise StateStoreUnavailable(
                f"the state store was busy with other states for {self._wait_s:g} s",
                retry_after_s=1,
            ) from None
        try:
            metadata = {RECORD_KEY: record.model_dump_json()}
            file = await asyncio.to_thread(
                content.to_safetensors, self._layout, slot.view, metadata
            )
            return await self._store.put(record, file)
        finally:
            self._places.release()

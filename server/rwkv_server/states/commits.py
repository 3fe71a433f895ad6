"""From a slot to the store: a few snapshots at a time, each read where it lies.

Of many turns that end in the same step the first are committed and answered while the others wait.
A store's thread may still be writing when a turn was given up; its slot stays what it is meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rwkv_server.states import content
from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.held import Piece
from rwkv_server.states.hot import HotTier, Slot
from rwkv_server.states.layout import StateLayout
from rwkv_server.states.ports import Store
from rwkv_server.states.record import Record
from rwkv_server.states.slots import SlotError

AT_ONCE = 8
WAIT_S = 30.0
RECORD_KEY = "rwkv_record"


@dataclass(frozen=True)
class SlotContent:
    """The file of a slot's snapshot; see `held.Content`.

    Attributes:
        header: what comes before the slot's bytes.
    """

    header: bytes
    slot: Slot
    layout: StateLayout
    hot: HotTier

    @property
    def nbytes(self) -> int:
        """Of the file."""
        return len(self.header) + self.layout.nbytes

    @contextmanager
    def hold(self) -> Iterator[Sequence[Piece]]:
        """Its two pieces.

        Raises:
            StateCorrupt: it holds values that no engine could go on from.
            StateStoreUnavailable: whoever wanted it written has given up.
        """
        try:
            with self.hot.hold(self.slot) as view:
                content.check_finite(self.layout, view)
                yield self.header, view
        except SlotError as error:
            raise StateStoreUnavailable(f"the snapshot is gone: {error}") from None


class Commits:
    """Writes what turns have saved."""

    def __init__(
        self, store: Store, hot: HotTier, layout: StateLayout, wait_s: float = WAIT_S
    ) -> None:
        """Write slots of `hot` to `store`; who has waited for others so long is refused."""
        self._store, self._hot, self._layout, self._wait_s = store, hot, layout, wait_s
        self._places = asyncio.Semaphore(AT_ONCE)

    async def write(self, record: Record, slot: Slot) -> Record:
        """Commit a slot's snapshot with its record; as `Store.put`.

        Raises:
            StateCorrupt: the snapshot holds values that no engine could go on from.
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
            header = content.make_header(self._layout, metadata)
            told = SlotContent(header, slot, self._layout, self._hot)
            return await self._store.put(record, told)
        finally:
            self._places.release()

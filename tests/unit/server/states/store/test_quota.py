"""How often a tenant's files are listed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from state_stores import Clock
from store_faults import PaperBlobs

from rwkv_server.states.errors import StateQuota
from rwkv_server.states.store.blobs import Blob
from rwkv_server.states.store.quota import AGE_S, Quota


class SlowBlobs(PaperBlobs):
    """A backend whose listings end when they may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self.listings = 0

    async def list(self, prefix: str) -> Sequence[Blob]:
        self.listings += 1
        found = await super().list(prefix)
        await self.may.wait()
        return found


async def test_all_who_ask_at_once_share_a_listing() -> None:
    blobs, clock = SlowBlobs(), Clock()
    quota = Quota(blobs, clock, 100)
    asking = [asyncio.create_task(quota.check("t", 1)) for _ in range(64)]
    await asyncio.sleep(0)
    asking.pop().cancel()  # the others' listing goes on
    await asyncio.sleep(0.01)
    blobs.may.set()
    await asyncio.gather(*asking)
    assert blobs.listings == 1
    clock.now += AGE_S + 1
    await quota.check("t", 1)
    assert blobs.listings == 2


async def test_what_was_deleted_meanwhile_is_counted_anew() -> None:
    blobs = SlowBlobs()
    await blobs.create("t/states/r.json", b"x" * 90)
    quota = Quota(blobs, Clock(), 100)
    before = asyncio.create_task(quota.check("t", 20))
    await asyncio.sleep(0.01)
    await blobs.delete("t/states/r.json")
    quota.recount("t")
    after = asyncio.create_task(quota.check("t", 20))
    await asyncio.sleep(0.01)
    blobs.may.set()
    with pytest.raises(StateQuota):
        await before
    await after
    await quota.check("t", 20)
    assert blobs.listings == 2

"""What tenants hold, by listings that are at most 10 seconds old, and whether more fits.

Within those seconds a tenant can go over its quota by what other engines write for it; what this
engine writes is counted at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from rwkv_server.states.errors import StateQuota
from rwkv_server.states.store import layout
from rwkv_server.states.store.blobs import Blobs

AGE_S = 10.0
_KEPT = 10_000
_RETRY_AFTER_S = 60


@dataclass(frozen=True)
class Usage:
    """What is stored: states with a record, and the bytes of all files."""

    states: int
    nbytes: int


@dataclass
class _Counted:
    usage: Usage
    at: float


class Quota:
    """Counts per tenant."""

    def __init__(
        self, blobs: Blobs, clock: Callable[[], float], max_bytes_per_tenant: int | None
    ) -> None:
        """Nothing is counted yet; None is no limit."""
        self._blobs = blobs
        self._clock = clock
        self._limit = max_bytes_per_tenant
        self._counted: dict[str, _Counted] = {}
        self._coming: Counter[str] = Counter()
        self._listings: dict[str, asyncio.Task[Usage]] = {}

    async def usage(self, tenant: str) -> Usage:
        """What the tenant held at most 10 seconds ago, and what this engine has written since."""
        known, now = self._counted.get(tenant), self._clock()
        if known is not None and 0 <= now - known.at <= AGE_S:
            return known.usage
        listing = self._listings.get(tenant)
        if listing is None:  # one for all who ask meanwhile
            listing = self._listings[tenant] = asyncio.ensure_future(self._list(tenant))
        await asyncio.wait({listing})  # whoever gives up leaves it to the others
        return listing.result()

    async def _list(self, tenant: str) -> Usage:
        now, this = self._clock(), asyncio.current_task()
        try:
            found = await self._blobs.list(layout.encode(tenant))
            records = sum(blob.key.endswith(".json") for blob in found)
            usage = Usage(records, sum(blob.size for blob in found))
            if self._listings.get(tenant) is this:
                if len(self._counted) >= _KEPT:
                    self._counted.clear()
                self._counted[tenant] = _Counted(usage, now)
            return usage
        finally:
            if self._listings.get(tenant) is this:
                del self._listings[tenant]

    async def check(self, tenant: str, nbytes: int) -> None:
        """Refuse what doesn't fit.

        Raises:
            StateQuota: with what is held and what is allowed.
        """
        if self._limit is None:
            return
        held = await self._held(tenant)
        if held + nbytes > self._limit:
            raise StateQuota(
                f"the saved states of this tenant hold {held} bytes; {nbytes} more would pass "
                f"their limit of {self._limit}. Delete some, or wait until they expire.",
                retry_after_s=_RETRY_AFTER_S,
            )

    @contextlib.asynccontextmanager
    async def room(self, tenant: str, nbytes: int) -> AsyncIterator[None]:
        """Hold room for a state while it is being written; raises as `check`."""
        await self.check(tenant, nbytes)
        self._coming[tenant] += nbytes  # before anybody else can look
        try:
            yield
            self.add(tenant, 1, nbytes)
        finally:
            self._coming[tenant] -= nbytes
            if not self._coming[tenant]:
                del self._coming[tenant]

    async def has_room(self, tenant: str, nbytes: int, share: float) -> bool:
        """Whether so much more is within a share of what the tenant may hold."""
        if self._limit is None:
            return True
        return await self._held(tenant) + nbytes <= share * self._limit

    async def _held(self, tenant: str) -> int:
        """Bytes of what is there, and of what is being written."""
        return (await self.usage(tenant)).nbytes + self._coming[tenant]

    def add(self, tenant: str, states: int, nbytes: int) -> None:
        """Count what was written just now."""
        known = self._counted.get(tenant)
        if known is not None:
            old = known.usage
            known.usage = Usage(old.states + states, old.nbytes + nbytes)

    def recount(self, tenant: str) -> None:
        """List anew the next time: something was deleted."""
        self._counted.pop(tenant, None)
        self._listings.pop(tenant, None)

"""Erasing a session, or all that a tenant has: stored, in memory and under way, on all engines.

Turns that are under way when everything is erased are answered and not kept. Engines that share a
store are told so before and after: those that read their state meanwhile aren't kept either.
"""

from __future__ import annotations

import contextlib

from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.parts import Parts


class Erasures:
    """What this engine erases, and has others erase."""

    def __init__(self, parts: Parts) -> None:
        """Take the store, what memory holds, and the other engines."""
        self._store, self._memory, self._peers = parts.store, parts.memory, parts.peers

    async def everywhere(self, tenant: str, session: str | None) -> int:
        """Erase a session, or everything; says how many states there were.

        Raises:
            StateStoreUnavailable: an engine doesn't answer; the others have done it.
        """
        if not self._store.shared:
            erased = await self.here(tenant, session)
            return erased + await self._peers.forget(tenant, session)
        if session is not None:
            return await self.here(tenant, session)
        with contextlib.suppress(StateStoreUnavailable):
            await self._peers.drop_turns(tenant)
        erased = await self.here(tenant, None)
        try:
            await self._peers.drop_turns(tenant)
        except StateStoreUnavailable as error:
            raise StateStoreUnavailable(
                f"all is erased, but what is under way on another engine may still be saved: "
                f"{error.message}",
                retry_after_s=error.retry_after_s,
            ) from None
        return erased

    async def here(self, tenant: str, session: str | None) -> int:
        """As `everywhere`, on this engine's store."""
        if session is not None:
            await self._memory.forget_prefixes(tenant)
            erased = await self._store.forget_session(tenant, session)
            self._memory.forget_all(tenant)
            return erased
        await self.drop_turns(tenant)
        erased = await self._store.forget_tenant(tenant)
        await self.drop_turns(tenant)  # those, too, that read their state before it went
        return erased

    async def drop_turns(self, tenant: str) -> None:
        """Keep nothing that is under way here, and drop what memory has; the store stays."""
        self._memory.erase_turns(tenant)
        await self._memory.forget_prefixes(tenant)
        self._memory.forget_all(tenant)

"""Sessions: chats that the server remembers the last state of. One turn at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rwkv_server.states.errors import SessionConflict, StateNotFound
from rwkv_server.states.ports import Peers, Store

# After it a turn whose engine is gone may be ended by anybody. A turn that takes longer loses its
# session's head.
CLAIM_S = 900.0


@dataclass(frozen=True)
class Place:
    """Where a session is.

    Attributes:
        head: the store's own, for a claim; None where this store has none.
        ref: the state to go on from; None in a new session.
    """

    head: Any
    ref: str | None


class Sessions:
    """Heads and claims of sessions."""

    def __init__(self, store: Store, peers: Peers | None, clock: Callable[[], float]) -> None:
        """Take the store of the heads, other engines, and the time in seconds since 1970."""
        self._store, self._peers, self._clock = store, peers, clock

    async def find(self, tenant: str, session: str, opens: bool) -> Place:
        """Where the session is, for its first turn or a later one.

        Raises:
            SessionConflict: it should begin and is there.
            StateNotFound: it should go on and isn't there.
            StateStoreUnavailable: nobody can tell.
        """
        head = await self._store.head(tenant, session)
        if opens:
            if head is not None:
                raise SessionConflict(
                    f"session {session} is there already, at {head.ref}: go on with "
                    "state.session true, or choose another id",
                    param="state.session",
                )
            return Place(None, None)
        if head is not None:
            return Place(head, head.ref)
        ref = None
        if self._peers is not None and not self._store.shared:
            ref = await self._peers.head(tenant, session)
        if ref is None:
            raise StateNotFound(
                f'no session {session}: begin it with state.session "new"', param="state.session"
            )
        return Place(None, ref)

    async def claim(self, tenant: str, session: str, place: Place) -> Any:
        """The right to the next turn, or SessionConflict."""
        deadline = self._clock() + CLAIM_S
        return await self._store.claim(tenant, session, place.head, deadline)

    async def end(self, claim: Any, ref: str | None) -> None:
        """The turn is over, at a new state or without one."""
        await self._store.end(claim, ref)

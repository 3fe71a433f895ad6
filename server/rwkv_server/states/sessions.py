"""Sessions: chats that the server remembers the last state of. One turn at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rwkv_server.states.errors import (
    SessionConflict,
    StateExpired,
    StateLost,
    StateNotFound,
    StateStoreUnavailable,
)
from rwkv_server.states.ports import Peers, Store

# After it whoever comes next may take a turn for dead. A living one that takes longer still ends
# well, unless somebody has come.
CLAIM_S = 120.0


@dataclass(frozen=True)
class Place:
    """Where a session is.

    Attributes:
        head: the store's own, for a claim; None where this store has none.
        ref: the state to go on from; None in a new session.
        elsewhere: what another engine says of the session, if its store has the log.
    """

    head: Any
    ref: str | None
    elsewhere: dict[str, Any] | None = None


@dataclass(frozen=True)
class Claim:
    """The right to a session's next turn, in the store that has its log."""

    token: Any
    elsewhere: bool


@contextlib.contextmanager
def last_state_of(session: str | None) -> Iterator[None]:
    """Say what to do about a session whose last state is gone."""
    try:
        yield
    except (StateNotFound, StateExpired, StateLost) as error:
        if session is None:
            raise
        raise type(error)(
            f"{error.message}; session {session} had come to it: erase that with "
            f"DELETE /v1/sessions/{session} and begin anew, or choose another id",
            param="state.session",
        ) from None


class Sessions:
    """Heads and claims of sessions. A session's log stays in the store that it began in."""

    def __init__(self, store: Store, peers: Peers | None, clock: Callable[[], float]) -> None:
        """Take the store of the heads, other engines, and the time in seconds since 1970."""
        self._store, self._clock = store, clock
        self._peers = None if store.shared else peers

    async def find(self, tenant: str, session: str, opens: bool) -> Place:
        """Where the session is, for its first turn or a later one.

        Raises:
            SessionConflict: it should begin and is there.
            StateNotFound: it should go on and isn't there.
            StateStoreUnavailable: nobody can tell, because an engine that may have it is away.
        """
        head = await self._store.head(tenant, session)
        if head is not None:
            place = Place(head, head.ref)
        else:
            found = None
            if self._peers is not None:
                found = await self._peers.session(tenant, session)
            place = Place(None, None if found is None else str(found["ref"]), found)
        if opens and place.ref is not None:
            raise SessionConflict(
                f"session {session} is there already, at {place.ref}: go on with state.session "
                f"true, choose another id, or erase it with DELETE /v1/sessions/{session}",
                param="state.session",
            )
        if not opens and place.ref is None:
            raise StateNotFound(
                f'no session {session}: begin it with state.session "new"', param="state.session"
            )
        return place

    async def claim(self, tenant: str, session: str, place: Place) -> Claim:
        """The right to the next turn, or SessionConflict."""
        try:
            return await self._claim(tenant, session, place)
        except SessionConflict as error:
            if place.ref is None:
                raise
            text = f"{error.message}; its last state was {place.ref}"
            raise SessionConflict(text, retry_after_s=error.retry_after_s) from None

    async def _claim(self, tenant: str, session: str, place: Place) -> Claim:
        if self._peers is not None and place.elsewhere is not None:
            token = await self._peers.claim(tenant, session, place.elsewhere, CLAIM_S)
            return Claim(token, True)
        deadline = self._clock() + CLAIM_S
        return Claim(await self._store.claim(tenant, session, place.head, deadline), False)

    async def end(self, claim: Claim, ref: str | None) -> None:
        """The turn is over, at a new state or without one."""
        try:
            await self._end(claim, ref)
        except StateStoreUnavailable:
            # It may have been written all the same; to write it again does no harm.
            try:
                await self._end(claim, ref)
            except StateStoreUnavailable as error:
                raise StateStoreUnavailable(
                    f"{error.message}; the session may have gone on to {ref} all the same: "
                    "GET /v1/sessions/<id> tells",
                    retry_after_s=error.retry_after_s,
                ) from None

    async def _end(self, claim: Claim, ref: str | None) -> None:
        if self._peers is not None and claim.elsewhere:
            await self._peers.end(claim.token, ref)
        else:
            await self._store.end(claim.token, ref)

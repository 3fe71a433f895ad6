"""Turns of this store's sessions that another engine makes: their claims, as they travel.

A session's log lies in one store. An engine that goes on with another's session claims the turn
there, and ends it there; the states themselves stay where they were made.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, Field

from rwkv_server.states.errors import SessionConflict, StateNotFound
from rwkv_server.states.parts import Store
from rwkv_server.states.store import layout
from rwkv_server.states.store.headlog import Begun, Try
from rwkv_server.states.store.heads import Claim

MAX_SECONDS = 3600.0


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Token(_Told):
    """The right to one turn; whose and which session's is said beside it."""

    turn: int
    number: int
    owner: str
    deadline: float


class ClaimWish(_Told):
    """The turn after `turns` is to begin, and to be ended within so many seconds."""

    turns: int = Field(ge=0)
    seconds: float = Field(gt=0, le=MAX_SECONDS)


class EndWish(_Told):
    """A turn is over: at a state, or without one."""

    token: Token
    ref: str | None


class Claims:
    """Claims on this store, for other engines."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        """Take the store of the heads; `clock` is its time, in seconds since 1970."""
        self._store, self._clock = store, clock

    async def begin(self, tenant: str, session: str, wish: ClaimWish) -> Token:
        """Claim the next turn.

        Raises:
            StateNotFound: there is no such session.
            SessionConflict: the session has gone on since, or another turn is under way.
        """
        head = await self._store.head(tenant, session)
        if head is None:
            raise StateNotFound(f"there is no session {session}", param="session")
        if head.turn != wish.turns:
            raise SessionConflict(
                f"session {session} has had another turn meanwhile; send this one again",
                retry_after_s=1,
            )
        deadline = self._clock() + wish.seconds
        claim = await self._store.claim(tenant, session, head, deadline, own=False)
        place, begun = claim.place, claim.begun
        return Token(
            turn=place.turn, number=place.number, owner=begun.owner, deadline=begun.deadline
        )

    async def end(self, tenant: str, session: str, wish: EndWish) -> None:
        """End a turn; safe to repeat.

        Raises:
            SessionConflict: its time was over and someone ended it.
        """
        token = wish.token
        place, begun = Try(token.turn, token.number), Begun(token.owner, token.deadline)
        claim = Claim(layout.heads(tenant, session), session, place, begun)
        await self._store.end(claim, wish.ref)

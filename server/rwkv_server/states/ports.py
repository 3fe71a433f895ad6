"""What turns need of the store, the engine's events and other pods, as types. Nothing runs here.

`store`, `events` and `peers` have the real ones; tests have smaller ones.
"""

from __future__ import annotations

from typing import Any, Protocol

from rwkv_server.states.held import Content
from rwkv_server.states.record import Record


class Events(Protocol):
    """What the engine tells of requests."""

    def expect(self, request: str, /) -> None:
        """Remember what is told of this request."""

    def forget(self, request: str, /) -> None:
        """Nobody cares any more."""

    async def ended(self, request: str, timeout_s: float, /) -> Any:
        """How it ended."""


class Head(Protocol):
    """The last committed turn of a session."""

    @property
    def ref(self) -> str:
        """The state to go on from."""


class Quota(Protocol):
    """What tenants may hold."""

    async def check(self, tenant: str, nbytes: int, /) -> None:
        """StateQuota, if so much more is too much."""

    async def has_room(self, tenant: str, nbytes: int, share: float, /) -> bool:
        """Whether so much more is within a share of what the tenant may hold."""


class Store(Protocol):
    """Records, snapshots and the heads of sessions."""

    @property
    def quota(self) -> Quota:
        """What tenants may hold."""

    @property
    def kind(self) -> str:
        """As in the settings."""

    @property
    def shared(self) -> bool:
        """Whether each engine reads what another has saved."""

    @property
    def epoch(self) -> str:
        """Names the store in refs."""

    async def get(self, tenant: str, ref: str, /) -> Record:
        """A record; StateNotFound, StateExpired, StateLost."""

    async def check_free(self, tenant: str, ref: str, /) -> None:
        """StateExists if a state has that name, or had it until minutes ago."""

    async def content(self, record: Record, /) -> bytes:
        """A snapshot's file; StateCorrupt."""

    async def put(self, record: Record, content: bytes | Content, /) -> Record:
        """Commit; StateExists, StateQuota, StateStoreFull."""

    async def delete(self, tenant: str, ref: str, /) -> None:
        """One state."""

    async def head(self, tenant: str, session: str, /) -> Any:
        """The session's head, or None."""

    async def claim(
        self, tenant: str, session: str, head: Any, deadline: float, /, *, own: bool = True
    ) -> Any:
        """The right to the session's next turn; SessionConflict."""

    async def end(self, claim: Any, ref: str | None, /) -> None:
        """The turn's ref is the head now; None gives the claim back."""


class Peers(Protocol):
    """Other engines of the deployment."""

    async def record(self, tenant: str, ref: str, /) -> Record:
        """A record that another engine holds."""

    async def content(self, tenant: str, record: Record, /) -> bytes:
        """Its snapshot's file."""

    async def session(self, tenant: str, session: str, /) -> dict[str, Any] | None:
        """What the engine with that session says of it: `ref`, `turns` and more."""

    async def claim(
        self, tenant: str, session: str, found: dict[str, Any], seconds: float, /
    ) -> Any:
        """The right to the next turn of a session that another engine has."""

    async def end(self, claim: Any, ref: str | None, /) -> None:
        """As the store's."""

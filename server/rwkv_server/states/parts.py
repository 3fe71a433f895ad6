"""What saved states are made of and where they lie, as values and types. Nothing runs here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rwkv_server.states import ports
from rwkv_server.states.exports import Limits
from rwkv_server.states.layout import StateLayout
from rwkv_server.states.memory import Memory
from rwkv_server.states.record import Fingerprint, Record
from rwkv_server.states.store.pages import Page
from rwkv_server.states.store.quota import Usage


@dataclass(frozen=True)
class Facts:
    """What holds for all states of this engine.

    Attributes:
        ordinal: of this engine, for new refs.
        open_access: whether everybody is the same tenant.
    """

    ordinal: int
    layout: StateLayout
    fingerprint: Fingerprint
    limits: Limits
    default_ttl_s: float
    max_bytes_per_tenant: int
    open_access: bool


@dataclass(frozen=True)
class New:
    """A state to be made.

    Attributes:
        name: the client's own; None for one of ours.
        ttl_s: how long it lives; None for the default.
        prefix: of a name of ours.
    """

    tenant: str
    name: str | None = None
    session: str | None = None
    ttl_s: float | None = None
    prefix: str = ""


class Prefill(Protocol):
    """The engine, for states that are made from a text."""

    async def prefill(self, request: dict[str, Any], new: New, /) -> Record:
        """Save what the model holds after a text, or after messages."""


class Store(ports.Store, Protocol):
    """The durable store, with what resources need beyond a turn."""

    async def page(
        self, tenant: str, session: str | None, after: str | None, limit: int, /
    ) -> Page:
        """Some states, in order of their names."""

    async def usage(self, tenant: str, /) -> Usage:
        """How many there are."""

    async def touch(self, tenant: str, ref: str, expires_at: float | None, /) -> Record:
        """Another expiry."""

    async def document(self, tenant: str, ref: str, /) -> bytes:
        """The answer that was kept beside a state."""

    async def forget_session(self, tenant: str, session: str, /) -> int:
        """All states of a session and its head; how many states there were."""

    async def forget_tenant(self, tenant: str, /) -> int:
        """Everything; how many states there were."""


class Peers(ports.Peers, Protocol):
    """Other engines, with what resources need beyond a turn."""

    async def pages(
        self, tenant: str, session: str | None, after: str | None, limit: int, /
    ) -> list[Page]:
        """A page of each."""

    async def forget(self, tenant: str, session: str | None, /) -> int:
        """Erase a session, or everything, on each; how many states there were."""

    async def drop_turns(self, tenant: str, /) -> None:
        """Have each keep nothing of a tenant that is under way."""

    async def session(self, tenant: str, session: str, /) -> dict[str, Any] | None:
        """What the engine with that session says of it."""


@dataclass(frozen=True)
class Parts:
    """Where states lie, and who else knows of them."""

    store: Store
    memory: Memory
    peers: Peers
    prefill: Prefill

"""The values of one generation with a state; `turns` makes and ends them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rwkv_server.states.errors import StateError, StateIncompatible, StateNotFound
from rwkv_server.states.events import Ended
from rwkv_server.states.frame import Frame, Snapshot, frame_new, frame_resumed
from rwkv_server.states.hot import HotTier, Slot
from rwkv_server.states.layout import StateLayout
from rwkv_server.states.loading import Loader, Source
from rwkv_server.states.ports import Events, Store
from rwkv_server.states.prefixes import Found
from rwkv_server.states.record import Fingerprint, Finish, Record
from rwkv_server.states.sessions import Place, Sessions
from rwkv_server.states.wishes import Wish


@dataclass(frozen=True)
class Identity:
    """Who this engine is and what its states are of.

    Attributes:
        placeholder: the token that stands for a state in a framed prompt.
        default_ttl_s: how long a state lives that nobody said more of; None for ever.
    """

    ordinal: int
    fingerprint: Fingerprint
    key: bytes
    placeholder: int
    default_ttl_s: float | None


@dataclass(frozen=True)
class Parts:
    """What turns work with."""

    layout: StateLayout
    store: Store
    hot: HotTier
    events: Events
    loader: Loader
    sessions: Sessions


@dataclass(frozen=True)
class Parent:
    """What a turn goes on from.

    Attributes:
        record: the state; None for a new text.
        place: where its session is.
    """

    record: Record | None
    place: Place | None = None


@dataclass
class Turn:
    """One generation under way.

    Attributes:
        params: the signed `kv_transfer_params`, without the prompt's tokens.
        whole: all tokens of the text, should its beginning be reused or remembered.
        found: the snapshot that stands for its beginning, if one does.
        erased: whether all that its tenant has was erased since it began.
    """

    id: str
    wish: Wish
    parent: Record | None
    source: Source
    frame: Frame
    load: Slot | None = None
    save: Slot | None = None
    prompt: Slot | None = None
    claim: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    whole: tuple[int, ...] = ()
    found: Found | None = None
    over: bool = False
    erased: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a generation ended.

    Attributes:
        visible: the tokens of the answer that count, see `visible`.
        finish: why it ended, in the client's words.
    """

    ended: Ended
    visible: tuple[int, ...]
    finish: Finish


@dataclass(frozen=True)
class Answer:
    """What the client is told.

    Attributes:
        record: the committed state; None if none was wished, or none could be kept.
        error: why none could be kept.
    """

    record: Record | None
    parent: Record | None
    source: Source
    durable: bool
    error: StateError | None = None


def make_frame(identity: Identity, record: Record | None, tokens: Sequence[int]) -> Frame:
    """The engine's prompt for a new text, or for one that goes on from a state."""
    if record is None:
        return frame_new(tokens)
    return frame_resumed(identity.placeholder, record.consumed_tokens, record.pending, tokens)


def make_record(
    turn: Turn, ref: str, snapshot: Snapshot, finish: Finish, identity: Identity, now: float
) -> Record:
    """The record of a turn's state; the store fills in what it knows of the file and itself."""
    ttl = turn.wish.ttl_s if turn.wish.ttl_s is not None else identity.default_ttl_s
    return Record(
        ref=ref,
        parent=None if turn.parent is None else turn.parent.ref,
        tenant=turn.wish.tenant,
        session=turn.wish.session,
        fingerprint=identity.fingerprint,
        nbytes=0,
        sha256="",
        consumed_tokens=snapshot.consumed,
        pending=snapshot.pending,
        finish_reason=finish,
        last_role=turn.wish.last_role,
        created_at=now,
        expires_at=None if ttl is None else now + ttl,
        epoch="",
    )


def check_kept(turn: Turn) -> None:
    """Refuse to save what was erased.

    Raises:
        StateNotFound
    """
    if turn.erased:
        raise StateNotFound("all states were erased during this turn, so nothing was saved")


def check_fingerprint(record: Record, wanted: Fingerprint) -> None:
    """Refuse a state of another model.

    Raises:
        StateIncompatible: with what differs.
    """
    found, ours = record.fingerprint.model_dump(), wanted.model_dump()
    for name in found:
        if found[name] != ours[name]:
            raise StateIncompatible(
                f"state {record.ref} is of another {name}: found {found[name]!r}, wanted "
                f"{ours[name]!r}; begin the text anew on this model"
            )

"""The values of one generation with a state; `turns` makes and ends them. Nothing runs here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rwkv_server.states.errors import StateError
from rwkv_server.states.events import Ended
from rwkv_server.states.frame import Frame
from rwkv_server.states.hot import Slot
from rwkv_server.states.loading import Source
from rwkv_server.states.record import Fingerprint, Finish, Record
from rwkv_server.states.sessions import Place
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
    over: bool = False


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

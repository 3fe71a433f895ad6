"""Names of tenants, states and sessions as keys of the store, under `<namespace>/<name>/`. Pure.

    _epoch                                      the store's 8 characters
    <tenant>/states/<ref>.<stamp>.safetensors   a snapshot; counts once there is a record
    <tenant>/states/<ref>.json                  its record: the commit
    <tenant>/states/<ref>.exp/<stamp>.<n>       a new expiry, the highest n counts
    <tenant>/states/<ref>.document              the answer beside it, for the Responses API
    <tenant>/states/<ref>.expired               what is left of one whose time was over
    <tenant>/heads/<session>/<n>.<k>.claim      a turn of a session has begun
    <tenant>/heads/<session>/<n>.<k>.end        and how it ended
    _forget/<tenant>[.<session>]                all of a tenant, or of a session, is being deleted

A stamp says which record a file belongs to, so that what a crash left of an earlier state of the
same name is never taken for the new one's.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

from rwkv_server.states.record import Record

EPOCH = "_epoch"
FORGET = "_forget"
_LONGEST = 150  # names of files end at 255 bytes on most volumes
_PLAIN = re.compile(r"[A-Za-z0-9-]")

Part = Literal["record", "snapshot", "expiry", "document", "expired"]

_STATE = re.compile(
    r"(?P<name>[^./]+)(?:(?P<record>\.json)|(?P<document>\.document)|(?P<expired>\.expired)"
    r"|\.(?P<snapshot>[0-9a-f]{16})\.safetensors|\.exp/(?P<expiry>[0-9a-f]{16})\.(?P<n>[0-9]+))"
)


def encode(name: str) -> str:
    """A name as one part of a key: plain characters stay, long names become a digest.

    Two names never share one: what isn't plain is `=` and two hex digits a byte.
    """
    plain = "".join(
        character if _PLAIN.fullmatch(character) else _hex(character.encode()) for character in name
    )
    if plain and len(plain) <= _LONGEST:
        return plain
    return f"=={hashlib.sha256(name.encode()).hexdigest()}"


def _hex(content: bytes) -> str:
    return "".join(f"={byte:02X}" for byte in content)


def stamp(record: Record) -> str:
    """What tells a record from another of the same name; its expiry is not in it."""
    told = f"{record.ref}\0{record.created_at!r}\0{record.sha256}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def states(tenant: str) -> str:
    """The folder of a tenant's states."""
    return f"{encode(tenant)}/states"


def record(tenant: str, ref: str) -> str:
    """The key of a record."""
    return f"{states(tenant)}/{encode(ref)}.json"


def snapshot(of: Record) -> str:
    """The key of a record's snapshot."""
    return f"{states(of.tenant)}/{encode(of.ref)}.{stamp(of)}.safetensors"


def expiries(tenant: str, ref: str) -> str:
    """The folder of a state's later expiries."""
    return f"{states(tenant)}/{encode(ref)}.exp"


def document(tenant: str, ref: str) -> str:
    """The key of the answer beside a state."""
    return f"{states(tenant)}/{encode(ref)}.document"


def expired(tenant: str, ref: str) -> str:
    """The key of what says that a state's time was over."""
    return f"{states(tenant)}/{encode(ref)}.expired"


def heads(tenant: str, session: str) -> str:
    """The folder of a session's log."""
    return f"{encode(tenant)}/heads/{encode(session)}"


def is_log(folder: str) -> bool:
    """Whether a folder is a session's log."""
    parts = folder.split("/")
    return len(parts) == 3 and parts[1] == "heads"


def states_beside(log: str) -> str:
    """The folder of the states of the tenant whose session's log that is."""
    return f"{log.partition('/')[0]}/states"


def forgetting(tenant: str, session: str | None) -> str:
    """The key that says a session, or all of a tenant, is being deleted."""
    end = "" if session is None else f".{encode(session)}"
    return f"{FORGET}/{encode(tenant)}{end}"


@dataclass(frozen=True)
class StateKey:
    """What a key in a tenant's folder of states is.

    Attributes:
        folder: where the tenant's states are, with a slash.
        name: the ref, encoded.
        part: which of its files.
        stamp: of the record it belongs to; "" where the key doesn't say.
        number: of an expiry, else 0.
    """

    folder: str
    name: str
    part: Part
    stamp: str = ""
    number: int = 0


def parse_state(key: str) -> StateKey | None:
    """What a key says, or None for one that isn't a state's."""
    tenant, middle, rest = key.partition("/states/")
    found = _STATE.fullmatch(rest) if middle and "/" not in tenant else None
    if found is None:
        return None
    parts: tuple[Part, ...] = ("record", "snapshot", "expiry", "document", "expired")
    part = next(p for p in parts if found[p])
    belongs = found[part] if part in ("snapshot", "expiry") else ""
    return StateKey(f"{tenant}/states/", found["name"], part, belongs, int(found["n"] or 0))

"""Names of states, sessions and tenants: what they look like, and what a server-made one tells.

`p<ordinal>-<epoch>-<random>` is a ref of ours: made by the engine with that ordinal, in the store
with that epoch. Ids of Responses have `resp_` before it, refs of state-cache.v1 `rwkv-`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from rwkv_server.states.errors import StateInvalidRef

RANDOM_LENGTH = 22
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_HOME = re.compile(r"(?:rwkv-|resp_)?p([0-9]{1,5})-(?:([0-9a-z]{8})-)?.*")
_RESERVED = re.compile(r"(?:rwkv-|resp_)?p[0-9]+-.*")


@dataclass(frozen=True)
class Home:
    """Where a server-made ref comes from.

    Attributes:
        ordinal: the engine's.
        epoch: the store's 8 characters; None where the name doesn't say.
    """

    ordinal: int
    epoch: str | None


def make_ref(home: Home, random_bytes: Callable[[int], bytes], prefix: str = "") -> str:
    """A ref that nobody can guess.

    Args:
        home: the engine and the store it belongs to; the epoch must be there.
        random_bytes: a source such as `secrets.token_bytes`.
        prefix: `resp_` or `rwkv-`, if any.
    """
    if home.epoch is None:
        raise ValueError("a ref needs its store's epoch")
    number = int.from_bytes(random_bytes(24), "big")
    characters = []
    for _ in range(RANDOM_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[digit])
    return f"{prefix}p{home.ordinal}-{home.epoch}-{''.join(characters)}"


def parse_home(ref: str) -> Home | None:
    """The home that a ref names, or None for a name of a client's."""
    found = _HOME.fullmatch(ref)
    return Home(int(found[1]), found[2]) if found else None


def check_id(value: object, field: str) -> str:
    """`value` if it may name a state or a session.

    Raises:
        StateInvalidRef: naming the field, what it holds and the grammar.
    """
    if isinstance(value, str) and _ID.fullmatch(value):
        return value
    shown = repr(value) if isinstance(value, str) else type(value).__name__
    raise StateInvalidRef(
        f"{field} is {shown[:160]}; wanted a letter or digit, then up to 127 letters, digits "
        "or any of _ . : -",
        param=field,
    )


def check_name(value: object, field: str) -> str:
    """`value` if a client may choose it as a name; what looks server-made it may not.

    Raises:
        StateInvalidRef: as `check_id`, and for names with a pod's number in front.
    """
    name = check_id(value, field)
    if _RESERVED.fullmatch(name):
        raise StateInvalidRef(
            f"{field} is {name!r}; names that begin with p<number>- are made by the server, "
            "choose another",
            param=field,
        )
    return name

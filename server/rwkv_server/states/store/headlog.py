"""What a listing of a session's log says: which turn is open, which comes next. Pure.

Files are `<n>.<k>.claim` and `<n>.<k>.end`: the k-th try at the n-th turn. Only the highest try of
a turn can have ended well, and only turns that did are followed by another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

_NAME = re.compile(r"([0-9]+)\.([0-9]+)\.(claim|end)")

Outcome = Literal["committed", "aborted", "forgotten"]


@dataclass(frozen=True, order=True)
class Try:
    """One try at one turn, counted from 1."""

    turn: int
    number: int

    def claim(self, folder: str) -> str:
        """The key that says it has begun."""
        return f"{folder}/{self.turn:06}.{self.number:03}.claim"

    def end(self, folder: str) -> str:
        """The key that says how it ended."""
        return f"{folder}/{self.turn:06}.{self.number:03}.end"


@dataclass(frozen=True)
class Log:
    """The tries of a session that have left something."""

    begun: frozenset[Try]
    ended: frozenset[Try]

    @property
    def open(self) -> Try | None:
        """The newest try that has not ended."""
        return max(self.begun - self.ended, default=None)

    @property
    def last_ended(self) -> list[Try]:
        """Of each turn the last try, if it has ended; newest turns first."""
        last: dict[int, Try] = {}
        for one in sorted(self.begun | self.ended):
            last[one.turn] = one
        return sorted((one for one in last.values() if one in self.ended), reverse=True)

    @property
    def top(self) -> Try:
        """The newest try; Try(0, 0) before the first."""
        return max(self.begun | self.ended, default=Try(0, 0))

    def old(self) -> list[Try]:
        """Tries of turns that can't be the head any more: all but the two newest turns'."""
        turns = sorted({one.turn for one in self.begun | self.ended})
        return sorted(one for one in self.begun | self.ended if one.turn in turns[:-2])


def parse_log(keys: Iterable[str]) -> Log:
    """The log that these keys are; others are passed over."""
    begun: set[Try] = set()
    ended: set[Try] = set()
    for key in keys:
        found = _NAME.fullmatch(key.rpartition("/")[2])
        if found:
            (begun if found[3] == "claim" else ended).add(Try(int(found[1]), int(found[2])))
    return Log(frozenset(begun), frozenset(ended))


@dataclass(frozen=True)
class Begun:
    """What a claim says.

    Attributes:
        owner: a random name of this claim.
        deadline: after that anyone may end it, in seconds since 1970.
        ordinal: of the engine that takes the turn; None where that isn't told.
        process: a random name of that engine's process.
    """

    owner: str
    deadline: float
    ordinal: int | None = None
    process: str = ""

    def dump(self) -> bytes:
        """As it lies in the store."""
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True)
class Ended:
    """What an end says; `ref` is of the committed state."""

    outcome: Outcome
    ref: str | None = None

    def dump(self) -> bytes:
        """As it lies in the store."""
        return json.dumps({"outcome": self.outcome, "ref": self.ref}).encode()


def parse_begun(content: bytes) -> Begun:
    """A claim from the store; ValueError if it isn't one."""
    found = _parse(content)
    owner, deadline = found.get("owner"), found.get("deadline")
    ordinal, process = found.get("ordinal"), found.get("process")
    if not isinstance(owner, str) or not isinstance(deadline, float | int):
        raise ValueError("not a claim of a session")
    if not isinstance(ordinal, int | None) or not isinstance(process, str):
        raise ValueError("a claim of nobody")
    return Begun(owner, float(deadline), ordinal, process)


def parse_ended(content: bytes) -> Ended:
    """An end from the store; ValueError if it isn't one."""
    found = _parse(content)
    outcome, ref = found.get("outcome"), found.get("ref")
    if outcome == "committed" and isinstance(ref, str):
        return Ended("committed", ref)
    if outcome == "aborted":
        return Ended("aborted")
    if outcome == "forgotten":
        return Ended("forgotten")
    raise ValueError("not an end of a session's turn")


def _parse(content: bytes) -> dict[str, object]:
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found

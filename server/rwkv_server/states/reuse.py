"""Which beginnings of prompts have a snapshot: automatic reuse's index. Pure.

A snapshot is what the model holds after exactly these tokens, in whatever request they came, so a
prefix is named by the hash of its tokens, salted by tenant and fingerprint. One pass over a
prompt's tokens asks for all lengths at which the tenant has a snapshot. What isn't in memory any
more is for the caller to find out and to drop.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

KEY_BYTES = 20


@dataclass(frozen=True)
class Prefix:
    """The first `length` tokens of some prompt, under a name that only they have."""

    key: str
    length: int


@dataclass
class _Shelf:
    """One tenant's prefixes: the least recently used first, and how many there are per length."""

    prefixes: OrderedDict[str, Prefix] = field(default_factory=OrderedDict)
    lengths: Counter[int] = field(default_factory=Counter)

    def remove(self, key: str) -> None:
        """Forget one, if it is there."""
        prefix = self.prefixes.pop(key, None)
        if prefix is not None:
            self.lengths[prefix.length] -= 1
            if not self.lengths[prefix.length]:
                del self.lengths[prefix.length]


class PrefixIndex:
    """Prefixes that may be resumed, of all tenants."""

    def __init__(self, fingerprint: bytes, limit: int) -> None:
        """Start empty.

        Args:
            fingerprint: what must be equal for a snapshot to mean the same.
            limit: prefixes of one tenant; the least recently used goes first.
        """
        self._fingerprint = fingerprint
        self._limit = limit
        self._shelves: dict[str, _Shelf] = {}

    def find(self, tenant: str, tokens: Sequence[int]) -> list[Prefix]:
        """What is stored of this prompt's beginning, the longest first.

        A prefix as long as the prompt is left out: the model has to read one token to answer.
        """
        shelf = self._shelves.get(tenant)
        if shelf is None:
            return []
        lengths = sorted(length for length in shelf.lengths if length < len(tokens))
        named = name_prefixes(self._fingerprint, tenant, tokens, lengths)
        return [prefix for prefix in named if prefix.key in shelf.prefixes][::-1]

    def name(self, tenant: str, tokens: Sequence[int]) -> Prefix:
        """The name of all of these tokens, whether or not it is stored."""
        return name_prefixes(self._fingerprint, tenant, tokens, [len(tokens)])[0]

    def add(self, tenant: str, prefix: Prefix) -> list[Prefix]:
        """Note that there is a snapshot; returns those that were forgotten for it."""
        shelf = self._shelves.setdefault(tenant, _Shelf())
        if prefix.key not in shelf.prefixes:
            shelf.prefixes[prefix.key] = prefix
            shelf.lengths[prefix.length] += 1
        shelf.prefixes.move_to_end(prefix.key)
        over = list(shelf.prefixes.values())[: max(0, len(shelf.prefixes) - self._limit)]
        for old in over:
            shelf.remove(old.key)
        return over

    def drop(self, tenant: str, key: str) -> None:
        """Note that there is no such snapshot any more."""
        shelf = self._shelves.get(tenant)
        if shelf is not None:
            shelf.remove(key)
            if not shelf.prefixes:
                del self._shelves[tenant]

    def forget(self, tenant: str) -> list[Prefix]:
        """Drop all of a tenant's; returns them."""
        shelf = self._shelves.pop(tenant, None)
        return [] if shelf is None else list(shelf.prefixes.values())


def name_prefixes(
    fingerprint: bytes, tenant: str, tokens: Sequence[int], lengths: Iterable[int]
) -> list[Prefix]:
    """The names of the prefixes with these lengths, which must rise; each token is read once."""
    salt = hashlib.blake2b(fingerprint + b"\0" + tenant.encode(), digest_size=32).digest()
    running = hashlib.blake2b(key=salt, digest_size=KEY_BYTES)
    content = memoryview(array("I", tokens)).cast("B")
    width = array("I").itemsize
    named, done = [], 0
    for length in lengths:
        running.update(content[done * width : length * width])
        named.append(Prefix(running.hexdigest(), length))
        done = length
    return named

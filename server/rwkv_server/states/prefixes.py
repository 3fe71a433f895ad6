"""Snapshots of prompts' beginnings in memory: found for a new prompt, kept for the next one.

The index knows which there were, the memory tier which there still are. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rwkv_server.states.hot import HotTier, Slot
from rwkv_server.states.reuse import Prefix, PrefixIndex


@dataclass(frozen=True)
class Found:
    """A pinned snapshot of a prompt's beginning.

    Attributes:
        slot: has what the model holds after the first `length` tokens.
        older: the next shorter one that is stored, which this one makes less useful.
    """

    slot: Slot
    length: int
    older: Prefix | None


def hot_key(prefix: Prefix) -> str:
    """How the memory tier calls it; no ref has a colon before its slash."""
    return f"prefix:{prefix.key}"


class Prefixes:
    """All tenants' snapshots of prefixes in this engine's memory.

    Attributes:
        on_keep: is told of each that may go to the store, and which other one it makes less useful.
    """

    def __init__(self, index: PrefixIndex, hot: HotTier) -> None:
        """Keep both."""
        self._index, self._hot = index, hot
        self.on_keep: Callable[[str, Prefix, Prefix | None], None] | None = None

    def find(self, tenant: str, tokens: Sequence[int]) -> Found | None:
        """The longest snapshot of this prompt's beginning; the caller unpins its slot."""
        matches = self._index.find(tenant, tokens)
        for at, prefix in enumerate(matches):
            slot = self._hot.pin(hot_key(prefix))
            if slot is not None:
                self._index.add(tenant, prefix)
                older = matches[at + 1] if at + 1 < len(matches) else None
                return Found(slot, prefix.length, older)
            self._index.drop(tenant, prefix.key)
        return None

    def has(self, tenant: str, tokens: Sequence[int]) -> bool:
        """Whether there is a snapshot of exactly these tokens."""
        return self._hot.has(hot_key(self._index.name(tenant, tokens)))

    def keep(
        self,
        tenant: str,
        tokens: Sequence[int],
        slot: Slot,
        came_from: Found | None,
        *,
        durable: bool = True,
    ) -> None:
        """Remember that `slot` has what the model holds after `tokens`; gives its pin back.

        A conversation that went on needs its last two: one to go on from, one should the last
        message be sent again in other words. Those before are the first to go.
        """
        prefix = self._index.name(tenant, tokens)
        forgotten = self._index.add(tenant, prefix)
        self._hot.keep(hot_key(prefix), slot)
        for old in forgotten:
            self._hot.drop(hot_key(old))
        older = None if came_from is None else came_from.older
        if older is not None:
            self._hot.demote(hot_key(older))
        if durable and self.on_keep is not None:
            self.on_keep(tenant, prefix, older)

    def longest(self, tenant: str, tokens: Sequence[int]) -> int:
        """Tokens of the longest beginning that memory has; 0 for none."""
        matches = self._index.find(tenant, tokens)
        return next((one.length for one in matches if self._hot.has(hot_key(one))), 0)

    def name(self, tenant: str, tokens: Sequence[int]) -> Prefix:
        """What these tokens are called."""
        return self._index.name(tenant, tokens)

    def adopt(self, tenant: str, prefix: Prefix, slot: Slot) -> None:
        """Remember what `slot` has, which comes from elsewhere; gives its pin back."""
        self._index.add(tenant, prefix)
        self._hot.keep(hot_key(prefix), slot)

    def forget(self, tenant: str) -> None:
        """Drop all of a tenant's."""
        for prefix in self._index.forget(tenant):
            self._hot.drop(hot_key(prefix))

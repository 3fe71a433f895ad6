"""What memory holds of saved states, for resources: who reads one, and how it is forgotten."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class _Tier(Protocol):
    def drop_all(self, prefix: str, /) -> None: ...


class Memory:
    """This engine's memory of states."""

    def __init__(
        self,
        hot: _Tier,
        in_use: Callable[[str, str], bool],
        forget_prefixes: Callable[[str], Awaitable[None]],
        erase_turns: Callable[[str], None],
    ) -> None:
        """Take the tier, and who knows of readers and of snapshots of prefixes by tenant and ref.

        Args:
            hot: the memory tier.
            in_use: whether a turn reads a tenant's state now.
            forget_prefixes: drops what automatic reuse keeps of a tenant, and is about to write.
            erase_turns: lets no turn of a tenant that is under way be saved.
        """
        self._hot, self._in_use, self._forget_prefixes = hot, in_use, forget_prefixes
        self._erase_turns = erase_turns

    def in_use(self, tenant: str, ref: str) -> bool:
        """Whether a turn reads the state now."""
        return self._in_use(tenant, ref)

    def forget(self, tenant: str, ref: str) -> None:
        """Drop a state that is gone from the store."""
        self._hot.drop_all(f"{tenant}/{ref}@")  # the rest of a key is its content's digest

    def erase_turns(self, tenant: str) -> None:
        """Let no turn of a tenant that is under way here be saved."""
        self._erase_turns(tenant)

    async def forget_prefixes(self, tenant: str) -> None:
        """Drop the beginnings of a tenant's prompts; none of them is written after this."""
        await self._forget_prefixes(tenant)

    def forget_all(self, tenant: str) -> None:
        """Drop a tenant's states; what is still stored is only read again."""
        self._hot.drop_all(f"{tenant}/")

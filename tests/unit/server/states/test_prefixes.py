"""Snapshots of beginnings in memory: which is found, and which go first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rwkv_server.states.hot import HotTier
from rwkv_server.states.layout import StateLayout, TensorSpec
from rwkv_server.states.prefixes import Found, Prefixes
from rwkv_server.states.reuse import PrefixIndex

LAYOUT = StateLayout((TensorSpec("layers.0.wkv", (4,), "float32", 0),), "float32", 1)
TOKENS = list(range(1, 101))


@pytest.fixture
def hot(tmp_path: Path) -> Iterator[HotTier]:
    tier = HotTier(tmp_path / "hot", LAYOUT, 4)
    yield tier
    tier.close()


@pytest.fixture
def prefixes(hot: HotTier) -> Prefixes:
    return Prefixes(PrefixIndex(b"model", 100), hot)


async def keep(prefixes: Prefixes, hot: HotTier, length: int, tenant: str = "ada") -> None:
    """One turn whose prompt has `length` tokens."""
    tokens = TOKENS[:length]
    found = prefixes.find(tenant, tokens)
    (slot,) = await hot.acquire(1, 0)
    slot.view[:4] = length.to_bytes(4, "little")
    prefixes.keep(tenant, tokens, slot, found)
    if found is not None:
        hot.unpin(found.slot)


def length_of(found: Found | None) -> int | None:
    """The length that a snapshot says it is of, which must be what it was found as."""
    if found is None:
        return None
    assert int.from_bytes(found.slot.view[:4], "little") == found.length
    return found.length


async def test_the_longest_that_is_still_there(prefixes: Prefixes, hot: HotTier) -> None:
    await keep(prefixes, hot, 10)
    await keep(prefixes, hot, 20)
    found = prefixes.find("ada", TOKENS)
    assert length_of(found) == 20
    assert prefixes.find("eve", TOKENS) is None
    assert length_of(prefixes.find("ada", TOKENS[:20])) == 10


async def test_what_memory_forgot_is_not_found_again(prefixes: Prefixes, hot: HotTier) -> None:
    await keep(prefixes, hot, 10)
    await keep(prefixes, hot, 20)
    for slot in await hot.acquire(4, 0):
        hot.release(slot)
    assert prefixes.find("ada", TOKENS) is None
    await keep(prefixes, hot, 30)
    assert length_of(prefixes.find("ada", TOKENS)) == 30


async def test_a_conversation_that_goes_on_gives_way_with_its_older_turns(
    prefixes: Prefixes, hot: HotTier
) -> None:
    other = [*TOKENS[:5], 7]
    (slot,) = await hot.acquire(1, 0)
    prefixes.keep("ada", other, slot, None)
    for length in (10, 20, 30, 40):
        await keep(prefixes, hot, length)
    assert length_of(prefixes.find("ada", TOKENS[:41])) == 40
    assert length_of(prefixes.find("ada", TOKENS[:40])) == 30
    assert prefixes.find("ada", TOKENS[:20]) is None
    assert prefixes.find("ada", [*other, 8]) is not None


async def test_the_same_beginning_twice_is_kept_once(prefixes: Prefixes, hot: HotTier) -> None:
    await keep(prefixes, hot, 10)
    await keep(prefixes, hot, 10)
    assert (hot.use.kept, hot.use.pinned) == (1, 0)


async def test_a_forgotten_tenant_holds_no_memory(prefixes: Prefixes, hot: HotTier) -> None:
    await keep(prefixes, hot, 10)
    await keep(prefixes, hot, 20, tenant="eve")
    prefixes.forget("ada")
    assert prefixes.find("ada", TOKENS) is None
    assert hot.use.kept == 1
    assert length_of(prefixes.find("eve", TOKENS)) == 20


async def test_the_index_forgets_no_more_than_memory_does(hot: HotTier) -> None:
    prefixes = Prefixes(PrefixIndex(b"model", 2), hot)
    for length in (10, 20, 30):
        await keep(prefixes, hot, length)
    assert hot.use.kept == 2

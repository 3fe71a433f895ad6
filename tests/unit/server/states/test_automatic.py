"""Automatic reuse inside turns: what a prompt leaves, and what the next one goes on from."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import state_stores

from rwkv_server.states.automatic import Automatic
from rwkv_server.states.connector import params
from rwkv_server.states.errors import StateBusy
from rwkv_server.states.events import Ended
from rwkv_server.states.hot import HotTier
from rwkv_server.states.layout import StateLayout, TensorSpec
from rwkv_server.states.loading import Loader
from rwkv_server.states.prefixes import Prefixes
from rwkv_server.states.record import Fingerprint
from rwkv_server.states.reuse import PrefixIndex
from rwkv_server.states.sessions import Sessions
from rwkv_server.states.turn import Identity, Outcome, Parent, Parts, Turn
from rwkv_server.states.turns import Turns
from rwkv_server.states.wishes import Wish

LAYOUT = StateLayout((TensorSpec("layers.0.wkv", (4,), "float32", 0),), "float32", 1)
KEY = b"key"
IDENTITY = Identity(0, Fingerprint(model="m", tokenizer="t", layout=1, dtype="f"), KEY, 99, None)
TOKENS = list(range(1, 41))
UNASKED = Wish("ada", reuse=True, remember=True)


class Engine:
    """Fills slots as the connector does, when it is told to end a request."""

    def __init__(self) -> None:
        self.waiting: dict[str, asyncio.Future[Ended]] = {}

    def expect(self, name: str) -> None:
        self.waiting[name] = asyncio.get_running_loop().create_future()

    def forget(self, name: str) -> None:
        self.waiting.pop(name, None)

    async def ended(self, name: str, timeout_s: float) -> Ended:
        return await self.waiting[name]

    def end(self, turn: Turn, prompt_saved: bool = True, failed: str | None = None) -> Ended:
        tokens = [*turn.frame.tokens, 7, 8]
        told = Ended("length_capped", len(tokens) - 1, tokens, True, prompt_saved, failed)
        self.waiting[turn.id].set_result(told)
        return told


@pytest.fixture
def hot(tmp_path: Path) -> Iterator[HotTier]:
    tier = HotTier(tmp_path / "hot", LAYOUT, 6)
    yield tier
    tier.close()


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
async def turns(hot: HotTier, engine: Engine) -> Turns:
    store = state_stores.store_on(state_stores.memory(), lambda: 1000.0)
    await store.open()
    random = itertools.count(1)
    loader = Loader(store, hot, LAYOUT, 0, None)
    sessions = Sessions(store, None, lambda: 1000.0)
    return Turns(
        IDENTITY,
        Parts(LAYOUT, store, hot, engine, loader, sessions),
        lambda: 1000.0,
        lambda count: next(random).to_bytes(count, "big"),
        Automatic(Prefixes(PrefixIndex(b"f", 100), hot), hot, IDENTITY.placeholder),
    )


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def one_turn(turns: Turns, engine: Engine, tokens: Sequence[int], wish: Wish) -> Turn:
    turn = await turns.begin(wish, Parent(None), tokens)
    if turn.prompt is not None:
        engine.end(turn)
    await turns.finish(turn, None)
    await settled()
    return turn


async def test_a_longer_prompt_goes_on_from_a_shorter_one(
    turns: Turns, engine: Engine, hot: HotTier
) -> None:
    first = await one_turn(turns, engine, TOKENS[:10], UNASKED)
    assert first.frame.tokens == tuple(TOKENS[:10])
    second = await turns.begin(UNASKED, Parent(None), TOKENS[:25])
    assert second.frame.tokens == (99, *TOKENS[10:25])
    assert (second.frame.cached, second.frame.new, second.source) == (10, 25, "none")
    transfer = params.verify(second.params, KEY)
    assert transfer.load is not None and transfer.prompt is not None and transfer.save is None
    engine.end(second)
    await turns.finish(second, None)
    await settled()
    assert (turns.open, hot.use.pinned, hot.use.kept) == (0, 0, 2)


@pytest.mark.parametrize(
    "wish",
    [Wish("ada"), Wish("eve", reuse=True), Wish("ada", remember=True)],
    ids=["that may not", "of another tenant", "that only leaves one"],
)
async def test_others_begin_anew(turns: Turns, engine: Engine, wish: Wish) -> None:
    await one_turn(turns, engine, TOKENS[:10], UNASKED)
    turn = await turns.begin(wish, Parent(None), TOKENS)
    assert turn.frame.tokens == tuple(TOKENS) and turn.load is None
    await turns.abandon(turn)


async def test_the_next_turn_waits_until_the_engine_has_told(turns: Turns, engine: Engine) -> None:
    first = await turns.begin(UNASKED, Parent(None), TOKENS[:10])
    await turns.finish(first, None)
    second = asyncio.create_task(turns.begin(UNASKED, Parent(None), TOKENS))
    other = await turns.begin(UNASKED, Parent(None), [5, *TOKENS])
    await settled()
    assert not second.done() and other.frame.cached == 0
    engine.end(first)
    assert (await second).frame.cached == 10


@pytest.mark.parametrize(
    "told", [{"prompt_saved": False}, {"failed": "not loaded"}], ids=["no copy", "a failed load"]
)
async def test_what_the_engine_did_not_make_is_not_kept(
    turns: Turns, engine: Engine, hot: HotTier, told: dict[str, Any]
) -> None:
    turn = await turns.begin(UNASKED, Parent(None), TOKENS[:10])
    engine.end(turn, **told)
    await turns.finish(turn, None)
    await settled()
    assert hot.use.kept == hot.use.pinned == 0


async def test_full_memory_holds_nobody_up(turns: Turns, engine: Engine, hot: HotTier) -> None:
    taken = await hot.acquire(6, 0)
    turn = await turns.begin(UNASKED, Parent(None), TOKENS[:10])
    assert turn.prompt is None
    await turns.finish(turn, None)
    assert turns.open == 0
    with pytest.raises(StateBusy):
        await hot.acquire(1, 0)
    for slot in taken:
        hot.release(slot)


async def test_half_of_the_memory_stays_for_who_asks_for_states(
    turns: Turns, engine: Engine, hot: HotTier
) -> None:
    await one_turn(turns, engine, TOKENS[:5], UNASKED)
    under_way = [await turns.begin(UNASKED, Parent(None), [at, *TOKENS]) for at in range(50, 60)]
    assert [turn.prompt is not None for turn in under_way] == [True] * 3 + [False] * 7
    longer = await turns.begin(UNASKED, Parent(None), TOKENS)
    assert longer.load is None and longer.frame.tokens == tuple(TOKENS)
    saved = await turns.begin(Wish("ada", save=True), Parent(None), TOKENS)
    assert saved.save is not None
    for turn in (*under_way, longer, saved):
        await turns.abandon(turn)
    again = await turns.begin(UNASKED, Parent(None), TOKENS)
    assert again.frame.cached == 5
    await turns.abandon(again)


async def test_who_leaves_early_leaves_nothing(turns: Turns, engine: Engine, hot: HotTier) -> None:
    turn = await turns.begin(UNASKED, Parent(None), TOKENS[:10])
    await turns.abandon(turn)
    await turns.abandon(turn)
    assert (turns.open, hot.use.pinned, hot.use.kept) == (0, 0, 0)
    assert not engine.waiting


async def test_a_saved_turn_leaves_its_prompt_too(turns: Turns, engine: Engine) -> None:
    wish = Wish("ada", save=True, reuse=True, remember=True)
    turn = await turns.begin(wish, Parent(None), TOKENS[:10])
    answer = await turns.finish(turn, Outcome(engine.end(turn), (7, 8), "length"))
    assert answer.record is not None and answer.record.consumed_tokens == 11
    longer = await turns.begin(wish, Parent(None), TOKENS)
    assert longer.frame.cached == 10
    saved = await turns.finish(longer, Outcome(engine.end(longer), (7, 8), "length"))
    assert saved.record is not None
    assert (saved.record.consumed_tokens, saved.record.pending) == (41, (8,))
    assert saved.record.parent is None


async def test_a_text_that_goes_on_from_a_state_leaves_no_prefix(
    turns: Turns, engine: Engine, hot: HotTier
) -> None:
    wish = Wish("ada", save=True, reuse=True, remember=True)
    first = await turns.begin(wish, Parent(None), [3, 4])
    record = (await turns.finish(first, Outcome(engine.end(first), (7,), "length"))).record
    assert record is not None
    kept = hot.use.kept
    second = await turns.begin(wish, Parent(record), TOKENS[:10])
    assert second.frame.tokens == (99, *TOKENS[:10])
    await turns.finish(second, Outcome(engine.end(second), (7,), "length"))
    assert hot.use.kept == kept + 1
    third = await turns.begin(UNASKED, Parent(None), TOKENS)
    assert third.frame.cached == 0
    await turns.abandon(third)

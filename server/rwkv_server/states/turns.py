"""One generation with a state, from the wish to the committed record.

    parent = await turns.find(wish)                   what it goes on from; decides how to render
    turn = await turns.begin(wish, parent, tokens)    loads, claims, and gives the framed prompt
    ...                                               the engine generates
    ended = await turns.ended(turn)                   all copies are made
    answer = await turns.finish(turn, Outcome(…))     committed, durable where the store is
    await turns.abandon(turn)                         instead, whenever something went wrong

Each turn ends with `finish` or `abandon`, which give back what it holds. Nothing here knows HTTP.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

from rwkv_server.states import counters, refs
from rwkv_server.states.automatic import Automatic
from rwkv_server.states.commits import Commits
from rwkv_server.states.connector.params import Transfer, sign
from rwkv_server.states.errors import (
    StateError,
    StateNotFound,
    StateStoreFull,
    StateStoreUnavailable,
    StateUnsupportedOption,
)
from rwkv_server.states.events import Ended
from rwkv_server.states.frame import Snapshot, choose_snapshot
from rwkv_server.states.hot import Slot
from rwkv_server.states.loading import check_name, hot_key
from rwkv_server.states.record import Finish, Record
from rwkv_server.states.room import Room
from rwkv_server.states.sessions import last_state_of
from rwkv_server.states.turn import (
    Answer,
    Identity,
    Outcome,
    Parent,
    Parts,
    Turn,
    check_fingerprint,
    check_kept,
    make_frame,
    make_record,
)
from rwkv_server.states.wishes import Wish

# How long a request's end may take after its last token.
END_S = 60.0
V1_PREFIX = "rwkv-"


class Turns:
    """Begins and ends turns.

    Attributes:
        open: turns under way.
        saved, failed: turns whose state was committed, and those whose state couldn't be kept.
    """

    def __init__(
        self,
        identity: Identity,
        parts: Parts,
        clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
        automatic: Automatic | None = None,
    ) -> None:
        """Take the parts; `clock` is in seconds since 1970."""
        self._identity, self._layout = identity, parts.layout
        self._store, self._events = parts.store, parts.events
        self._loader, self._sessions = parts.loader, parts.sessions
        self._room = Room(parts.hot, parts.loader, automatic)
        self._commits = Commits(parts.store, parts.hot, parts.layout)
        self._clock, self._random_bytes = clock, random_bytes
        self._automatic = automatic
        self._in_use: Counter[tuple[str, str]] = Counter()
        self._under_way: dict[str, Turn] = {}
        self.saved, self.failed = 0, 0

    @property
    def open(self) -> int:
        """How many turns are under way."""
        return len(self._under_way)

    def erase(self, tenant: str) -> None:
        """Save no turn of a tenant that is under way now."""
        for turn in self._under_way.values():
            turn.erased = turn.erased or turn.wish.tenant == tenant

    def in_use(self, tenant: str, ref: str) -> bool:
        """Whether a turn goes on from this state now."""
        return self._in_use[tenant, ref] > 0

    def remembers(self, tenant: str, tokens: Sequence[int]) -> bool:
        """Whether an earlier prompt has left a snapshot of exactly this text."""
        return self._automatic is not None and self._automatic.remembers(tenant, tokens)

    async def settle_all(self, tenant: str) -> None:
        """Wait a moment for what complete answers of a tenant are about to leave."""
        if self._automatic is not None:
            await self._automatic.settle_all(tenant)

    async def find(self, wish: Wish) -> Parent:
        """What the wish goes on from, after everything that can be told without the engine.

        Raises:
            StateError: of any kind.
        """
        if wish.name is not None:
            await self.check_name(wish.tenant, wish.name)
        place = None
        ref = wish.ref
        if wish.session is not None:
            place = await self._sessions.find(wish.tenant, wish.session, wish.opens)
            ref = wish.ref or place.ref
        with last_state_of(None if wish.ref else wish.session):
            record = None if ref is None else await self._loader.record(wish.tenant, ref)
        if record is not None:
            check_fingerprint(record, self._identity.fingerprint)
        if wish.save:
            await self._store.quota.check(wish.tenant, self._layout.nbytes)
        return Parent(record, place)

    async def check_name(self, tenant: str, name: str) -> None:
        """Refuse a name of the client's that can't be used: StateNeedsSharedStore, StateExists."""
        await check_name(self._store, tenant, name)

    async def begin(self, wish: Wish, parent: Parent, tokens: Sequence[int]) -> Turn:
        """Load the state, claim the session and frame the prompt.

        Args:
            wish: as for `find`.
            parent: what `find` said.
            tokens: the new text.

        Raises:
            StateError: of any kind; nothing is held then.
        """
        record = parent.record
        turn = Turn(
            self._random_bytes(16).hex(),
            wish,
            record,
            "none",
            make_frame(self._identity, record, tokens),
        )
        if len(turn.frame.text) == 0:
            raise StateUnsupportedOption("the prompt is empty: wanted a token at least")
        self._count(turn, 1)
        try:
            if self._automatic is not None:
                await self._automatic.settle(turn, tokens)
            await self._room.take(turn)
            if wish.session is not None and parent.place is not None:
                turn.claim = await self._sessions.claim(wish.tenant, wish.session, parent.place)
        except BaseException:
            await self._let_go(turn)
            raise
        transfer = Transfer(turn.id, *map(_lease, (turn.load, turn.save, turn.prompt)))
        turn.params = sign(transfer, self._identity.key)
        if turn.prompt is not None:
            self._events.expect(turn.id)
        return turn

    async def ended(self, turn: Turn) -> Ended:
        """Wait for the engine to have made all copies of a turn that saves."""
        return cast(Ended, await self._events.ended(turn.id, END_S))

    async def finish(self, turn: Turn, outcome: Outcome | None) -> Answer:
        """Commit the turn's state and give everything back; without an outcome only the latter.

        A state that can't be kept is told in the answer: the text is there already.
        """
        if outcome is None or not turn.wish.save:
            await self._end_unsaved(turn)
            return self._answer(turn, None)
        try:
            with counters.commit_seconds.time():
                record = await self._commit(turn, outcome)
        except StateError as error:
            return await self.fail(turn, error)
        except BaseException:
            await self.abandon(turn)
            raise
        self.saved += 1
        counters.saves.inc()
        counters.saved_bytes.inc(record.nbytes)
        if self._automatic is not None:
            self._automatic.remember(turn, outcome.ended)
        await self._let_go(turn)
        return self._answer(turn, record)

    async def fail(self, turn: Turn, error: StateError) -> Answer:
        """As `abandon`, for a generation that the client has and whose state can't be kept."""
        self.failed += isinstance(error, StateStoreUnavailable | StateStoreFull)
        counters.failures.labels(error.code).inc()
        await self.abandon(turn)
        # Its frames would hold on to the slots' memory.
        return self._answer(turn, None, error.with_traceback(None))

    async def abandon(self, turn: Turn) -> None:
        """Give everything back; the session stays where it was."""
        if not turn.over:
            counters.abandoned.inc()
        await self._let_go(turn)

    async def _commit(self, turn: Turn, outcome: Outcome) -> Record:
        ended, prompt = outcome.ended, len(turn.frame.tokens)
        if tuple(ended.tokens[:prompt]) != turn.frame.tokens:
            raise StateError(f"the engine didn't tell of this prompt: {ended.status}")
        consumed = ended.consumed if ended.saved else None
        output = ended.tokens[prompt:]
        snapshot = choose_snapshot(turn.frame, output, outcome.visible, consumed)
        slot = turn.save if snapshot.place == "final" else turn.prompt
        if slot is None or (snapshot.place == "prompt" and not ended.prompt_saved):
            raise StateError(ended.failed or "the engine has no snapshot of this generation")
        record = self._record(turn, snapshot, outcome.finish)
        check_kept(turn)
        record = await self._commits.write(record, slot)
        if turn.erased:
            with contextlib.suppress(StateNotFound):
                await self._store.delete(record.tenant, record.ref)
        check_kept(turn)
        self._room.keep(turn, hot_key(record), slot)
        if turn.claim is not None:
            await self._sessions.end(turn.claim, record.ref)
            turn.claim = None
        return record

    async def _let_go(self, turn: Turn) -> None:
        """Give back whatever the turn still holds, once."""
        if not turn.over:
            turn.over = True
            await self._give_back(turn)

    async def _end_unsaved(self, turn: Turn) -> None:
        """Let go at once, or when the engine has told of a snapshot that is to stay."""
        if self._automatic is None or turn.prompt is None or turn.over:
            await self._let_go(turn)
        else:
            turn.over = True
            self._automatic.remember_later(turn, self.ended, self._give_back)

    async def _give_back(self, turn: Turn) -> None:
        self._count(turn, -1)
        self._events.forget(turn.id)
        self._room.give_back(turn)
        if turn.claim is not None:
            claim, turn.claim = turn.claim, None
            # Not ended, it ends by its deadline; ended by somebody else, it's no longer ours.
            with contextlib.suppress(StateError):
                await self._sessions.end(claim, None)

    def _count(self, turn: Turn, by: int) -> None:
        if by > 0:
            self._under_way[turn.id] = turn
        else:
            del self._under_way[turn.id]
        if turn.parent is not None:
            key = turn.parent.tenant, turn.parent.ref
            self._in_use[key] += by
            if not self._in_use[key]:
                del self._in_use[key]

    def _record(self, turn: Turn, snapshot: Snapshot, finish: Finish) -> Record:
        home = refs.Home(self._identity.ordinal, self._store.epoch)
        prefix = V1_PREFIX if turn.wish.dialect == "v1" else ""
        ref = turn.wish.name or turn.wish.made or refs.make_ref(home, self._random_bytes, prefix)
        record = make_record(turn, ref, snapshot, finish, self._identity, self._clock())
        return record.model_copy(update={"epoch": self._store.epoch})

    def _answer(self, turn: Turn, record: Record | None, error: StateError | None = None) -> Answer:
        return Answer(record, turn.parent, turn.source, self._store.kind != "ephemeral", error)


def _lease(slot: Slot | None) -> Any:
    return None if slot is None else slot.lease

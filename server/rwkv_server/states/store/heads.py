"""Which state a session is at: a log of turns on create-only puts, as every backend has them.

A turn claims the next place before its first byte goes out, and the one whose put came first has
it. Each claim ends once: committed with the state it led to, or aborted, by its owner or by whoever
comes next when its owner is dead: after its deadline, or at once for the next process of the same
engine, because Kubernetes runs one pod at a time of an ordinal. The head is the last committed end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from rwkv_server.states.errors import SessionConflict, StateCorrupt
from rwkv_server.states.store import headlog, layout
from rwkv_server.states.store.blobs import BlobExists, BlobMissing, Blobs
from rwkv_server.states.store.headlog import Begun, Ended, Log, Try

# How far the clocks of two nodes may differ before one aborts the other's living turn.
SKEW_S = 5.0
_TRIES = 5
_T = TypeVar("_T")


@dataclass(frozen=True)
class Head:
    """Where a session is.

    Attributes:
        turn: how many turns it had; tells one head from another.
        ref: the state that the last one led to.
        busy: whether a turn is under way, as far as this engine can tell.
    """

    turn: int
    ref: str
    busy: bool


@dataclass(frozen=True)
class Claim:
    """The right to end one turn; made by `Heads` only."""

    folder: str
    session: str
    place: Try
    begun: Begun


@dataclass(frozen=True)
class _Seen:
    log: Log
    head: Head | None


class Heads:
    """The logs of all sessions in a backend. Every method may raise StateStoreUnavailable."""

    def __init__(
        self,
        blobs: Blobs,
        ordinal: int,
        clock: Callable[[], float],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """Nothing is read yet; `ordinal` is this engine's."""
        self._blobs = blobs
        self._ordinal = ordinal
        self._process = random_bytes(8).hex()
        self._clock = clock
        self._random_bytes = random_bytes

    async def head(self, tenant: str, session: str) -> Head | None:
        """The head, or None for a session that never had one, or was deleted."""
        return (await self._see(layout.heads(tenant, session), session)).head

    async def claim(
        self,
        tenant: str,
        session: str,
        head: Head | None,
        deadline: float,
        *,
        own: bool = True,
    ) -> Claim:
        """Begin a turn after `head`; None opens a session.

        Args:
            tenant: whose session.
            session: its name.
            head: as `head` returned it.
            deadline: when others may take the turn as dead, in seconds since 1970.
            own: whether this engine takes the turn; else it only keeps the log for another.

        Raises:
            SessionConflict: another turn is under way, or was faster, or the session is there.
        """
        name = self._random_bytes(12).hex()
        begun = Begun(name, deadline, self._ordinal if own else None, self._process)
        return await self._claim(layout.heads(tenant, session), session, head, begun)

    async def _claim(self, folder: str, session: str, head: Head | None, begun: Begun) -> Claim:
        seen = await self._see(folder, session)
        _check_same(session, head, seen.head)
        try:
            place, expected = await self._next_place(folder, session, seen.log)
        except BlobMissing:
            raise SessionConflict(_faster(session), retry_after_s=1) from None
        try:
            await self._blobs.create(place.claim(folder), begun.dump())
        except BlobExists:
            if await self._is_anothers(self._begun(folder, place), begun):
                raise SessionConflict(_faster(session), retry_after_s=1) from None
        claim = Claim(folder, session, place, begun)
        if head is None and not _is_same(await self._log(folder), _with_claim(expected, place)):
            # The log was emptied after we read it: someone else may have opened it anew.
            await self.end(claim, None)
            raise SessionConflict(_faster(session), retry_after_s=1)
        return claim

    async def end(self, claim: Claim, ref: str | None) -> None:
        """End a turn: with the state it led to, or None if it came to nothing. Safe to repeat.

        Raises:
            SessionConflict: its deadline had passed and someone ended it.
        """
        ended = Ended("aborted") if ref is None else Ended("committed", ref)
        await self._end(claim, ended)

    async def forget(self, claim: Claim) -> None:
        """End a turn by ending the session: the next may open it anew. Raises as `end`."""
        await self._end(claim, Ended("forgotten"))

    async def drop_old(self, folder: str, keys: list[str]) -> int:
        """Delete the entries of a log that say nothing any more; says how many."""
        old = headlog.parse_log(keys).old()
        await self._delete(folder, old)
        return len(old)

    async def drop_forgotten(self, folder: str, keys: list[str]) -> bool:
        """Delete the whole log of a session that was ended; says whether it was."""
        log = headlog.parse_log(keys)
        if log.open is not None or log.top not in log.ended:
            return False
        try:
            if (await self._ended(folder, log.top)).outcome != "forgotten":
                return False
        except BlobMissing:
            return False
        await self._delete(folder, sorted(log.begun | log.ended))
        return True

    async def forget_dead(
        self, folder: str, is_there: Callable[[str], Awaitable[bool]], deadline: float
    ) -> bool:
        """End a session whose head names a state that isn't there; says whether it did.

        Raises:
            SessionConflict: it lives.
        """
        session = folder.rpartition("/")[2]
        head = (await self._see(folder, session)).head
        if head is None or await is_there(head.ref):
            return False
        begun = Begun(self._random_bytes(12).hex(), deadline, self._ordinal, self._process)
        await self.forget(await self._claim(folder, session, head, begun))
        return True

    async def _delete(self, folder: str, tries: list[Try]) -> None:
        # Claims first: one without its end would look like a turn under way.
        for one in tries:
            await self._blobs.delete(one.claim(folder))
            await self._blobs.delete(one.end(folder))

    async def _end(self, claim: Claim, ended: Ended) -> None:
        try:
            await self._blobs.create(claim.place.end(claim.folder), ended.dump())
        except BlobExists:
            if await self._is_anothers(self._ended(claim.folder, claim.place), ended):
                raise SessionConflict(
                    f"the turn of session {claim.session!r} took longer than its deadline, or its "
                    "engine was taken for dead: the session went on without it"
                ) from None

    async def _is_anothers(self, found: Awaitable[_T], own: _T) -> bool:
        """Whether what is in a log isn't our own; what went since isn't, either."""
        try:
            return await found != own
        except BlobMissing:
            return True

    async def _see(self, folder: str, session: str) -> _Seen:
        for _ in range(_TRIES):
            log = await self._log(folder)
            try:
                return _Seen(log, await self._head_of(folder, log))
            except BlobMissing:
                continue  # it went on meanwhile, and what was old is being deleted
        raise SessionConflict(_faster(session), retry_after_s=1)

    async def _head_of(self, folder: str, log: Log) -> Head | None:
        for place in log.last_ended:
            ended = await self._ended(folder, place)
            if ended.outcome == "forgotten":
                return None
            if ended.outcome == "committed" and ended.ref is not None:
                return Head(place.turn, ended.ref, await self._is_busy(folder, log.open))
        return None

    async def _is_busy(self, folder: str, place: Try | None) -> bool:
        return place is not None and self._time_left(await self._begun(folder, place)) > 0

    async def _next_place(self, folder: str, session: str, log: Log) -> tuple[Try, Log]:
        """Where the next turn goes, and the log as it is then, without it."""
        if log.open is not None:
            await self._take_over(folder, session, log.open)
            log = Log(log.begun, log.ended | {log.open})
        top = log.top
        if top.turn and (await self._ended(folder, top)).outcome == "aborted":
            return Try(top.turn, top.number + 1), log
        return Try(top.turn + 1, 1), log

    async def _take_over(self, folder: str, session: str, place: Try) -> None:
        begun = await self._begun(folder, place)
        left = self._time_left(begun)
        if left > 0:
            raise SessionConflict(
                f"another turn of session {session!r} is under way; wait for it, or fork the state",
                retry_after_s=max(1, min(60, round(left))),
            )
        try:
            await self._blobs.create(place.end(folder), Ended("aborted").dump())
        except BlobExists:
            if (await self._ended(folder, place)).outcome != "aborted":
                raise SessionConflict(_faster(session)) from None

    def _time_left(self, begun: Begun) -> float:
        """For how long the turn may live, in seconds."""
        if begun.ordinal == self._ordinal and begun.process != self._process:
            return 0.0  # an earlier process of this engine was killed
        return begun.deadline + SKEW_S - self._clock()

    async def _log(self, folder: str) -> Log:
        return headlog.parse_log(blob.key for blob in await self._blobs.list(folder))

    async def _begun(self, folder: str, place: Try) -> Begun:
        key = place.claim(folder)
        try:
            return headlog.parse_begun(await self._blobs.get(key))
        except ValueError as error:
            raise StateCorrupt(f"{key} of the state store can't be read: {error}") from None

    async def _ended(self, folder: str, place: Try) -> Ended:
        key = place.end(folder)
        try:
            return headlog.parse_ended(await self._blobs.get(key))
        except ValueError as error:
            raise StateCorrupt(f"{key} of the state store can't be read: {error}") from None


def _check_same(session: str, wanted: Head | None, found: Head | None) -> None:
    if wanted is None and found is not None:
        raise SessionConflict(
            f"session {session!r} is there already, at state {found.ref}; continue it, or choose "
            "another id"
        )
    if wanted is not None and (found is None or found.turn != wanted.turn):
        now = "was deleted" if found is None else f"is at state {found.ref} now"
        raise SessionConflict(f"session {session!r} {now}: another request was faster")


def _with_claim(log: Log, place: Try) -> Log:
    return Log(log.begun | {place}, log.ended)


def _is_same(found: Log, wanted: Log) -> bool:
    """Whether nothing went or came, but for what a sweep takes of a log."""
    old = {*wanted.old()}
    return found.begun - old == wanted.begun - old and found.ended - old == wanted.ended - old


def _faster(session: str) -> str:
    return f"another turn of session {session!r} was faster; read its head and try again"

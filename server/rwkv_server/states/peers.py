"""What other engines of the deployment hold, asked over their internal routes with their key.

For stores that only one pod reads, and for what is under way. What a peer answers is believed as
far as its own store would be: the engine that holds a state is the one that knows whether it was
lost, expired or never was.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx

from rwkv_server.states import refs
from rwkv_server.states.claims import ClaimWish, EndWish, Token
from rwkv_server.states.errors import (
    StateCorrupt,
    StateError,
    StateNotFound,
    StateStoreUnavailable,
)
from rwkv_server.states.record import Record, parse_record
from rwkv_server.states.store.pages import Page

TIMEOUT = httpx.Timeout(30.0, connect=2.0)
RETRY_AFTER_S = 5
# How long an engine that was heard is taken for one that will be back.
REMEMBERED_S = 600.0
# The name doesn't exist: no pod has it, as opposed to one that doesn't answer.
_NO_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
# What to do about an engine that can't be asked, or can't be told to erase.
_ASK, _TELL = "what it holds is safe, try again", "send the DELETE again"
_BY_CODE = {(kind.status, kind.code): kind for kind in StateError.__subclasses__()}


class NoEngine(StateStoreUnavailable):
    """No pod has that ordinal now."""


class NotServing(StateStoreUnavailable):
    """A pod has that ordinal, and no engine runs in it."""


@dataclass(frozen=True)
class Addresses:
    """Where engines are.

    Attributes:
        url_of: the address of the engine with an ordinal.
        ordinals: engines have numbers below that.
        own: this engine's.
    """

    url_of: Callable[[int], str]
    ordinals: int
    own: int

    @property
    def others(self) -> list[int]:
        """The ordinals of all other engines that there may be."""
        return [ordinal for ordinal in range(self.ordinals) if ordinal != self.own]


@dataclass(frozen=True)
class PeerClaim:
    """The right to a turn of a session whose log another engine has."""

    ordinal: int
    tenant: str
    session: str
    token: Token


class HttpPeers:
    """The other engines."""

    def __init__(
        self,
        addresses: Addresses,
        key: str,
        client: httpx.AsyncClient,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep where they are and what they ask for; `clock` counts seconds since any time."""
        self._addresses = addresses
        self._key = key
        self._client = client
        self._clock = clock
        self._heard: dict[int, float] = {}

    async def record(self, tenant: str, ref: str) -> Record:
        """A state's record, from the engine that its name tells.

        Raises:
            StateNotFound, StateExpired, StateLost: as that engine says.
            StateStoreUnavailable: it doesn't answer.
        """
        answer = await self._get(self._home(ref), f"states/{ref}", tenant)
        record = parse_record(answer.content, ref)
        if (record.tenant, record.ref) != (tenant, ref):
            raise StateCorrupt(f"the record of state {ref} is another state's")
        return record

    async def content(self, tenant: str, record: Record) -> bytes:
        """Its snapshot's file; the sum is checked here as well."""
        ref = record.ref
        answer = await self._get(self._home(ref), f"states/{ref}/content", tenant)
        digest = await asyncio.to_thread(hashlib.sha256, answer.content)
        if digest.hexdigest() != record.sha256:
            raise StateCorrupt(f"the snapshot of state {ref} was changed on its way here")
        return answer.content

    async def session(self, tenant: str, session: str) -> dict[str, Any] | None:
        """What the engine with the session's log says of it; None if no engine has it.

        Raises:
            StateStoreUnavailable: nobody has it, and one that may doesn't answer.
        """

        async def ask(ordinal: int) -> dict[str, Any] | None:
            try:
                answer = await self._get(ordinal, f"sessions/{session}", tenant)
            except StateNotFound:
                return None
            found: dict[str, Any] = answer.json()
            return {**found, "ordinal": ordinal}

        answers = await self._all(ask)
        found = [answer for answer in answers if isinstance(answer, dict)]
        if found:
            return max(found, key=lambda each: each["turns"])
        self._check_complete(answers)
        return None

    async def claim(
        self, tenant: str, session: str, found: dict[str, Any], seconds: float
    ) -> PeerClaim:
        """The right to the next turn of a session, from the engine that has its log.

        Args:
            tenant: whose session.
            session: its id.
            found: as `session` gave it.
            seconds: when others may take the turn as dead.

        Raises:
            SessionConflict: another turn was faster.
            StateStoreUnavailable: the engine doesn't answer.
        """
        ordinal = int(found["ordinal"])
        wish = ClaimWish(turns=found["turns"], seconds=seconds)
        path = f"sessions/{session}/claim"
        answer = await self._send("POST", ordinal, path, tenant, content=wish.model_dump_json())
        return PeerClaim(ordinal, tenant, session, Token.model_validate_json(answer.content))

    async def end(self, claim: PeerClaim, ref: str | None) -> None:
        """End a turn that was claimed: at a state, or None if it came to nothing; raises so too."""
        wish = EndWish(token=claim.token, ref=ref)
        path = f"sessions/{claim.session}/end"
        await self._send("POST", claim.ordinal, path, claim.tenant, content=wish.model_dump_json())

    async def pages(
        self, tenant: str, session: str | None, after: str | None, limit: int
    ) -> list[Page]:
        """A page of each other engine.

        Raises:
            StateStoreUnavailable: one of them doesn't answer.
        """
        query = {"session": session, "after": after, "limit": limit}
        given = {name: value for name, value in query.items() if value is not None}

        async def ask(ordinal: int) -> Page:
            answer = (await self._get(ordinal, "states", tenant, given)).json()
            return Page(tuple(Record.model_validate(r) for r in answer["data"]), answer["after"])

        answers = await self._all(ask)
        self._check_complete(answers)
        return [answer for answer in answers if isinstance(answer, Page)]

    async def forget(self, tenant: str, session: str | None) -> int:
        """Erase a session, or everything of the tenant, on each other engine.

        Raises:
            StateStoreUnavailable: one of them doesn't answer; the others have done it.
        """
        query = {} if session is None else {"session": session}

        async def ask(ordinal: int) -> int:
            answer = await self._send("DELETE", ordinal, "states", tenant, _TELL, params=query)
            return int(answer.json()["erased"])

        answers = await self._all(ask)
        self._check_complete(answers)
        return sum(answer for answer in answers if isinstance(answer, int))

    async def drop_turns(self, tenant: str) -> None:
        """Have each other engine keep nothing of a tenant that is under way there.

        Raises:
            StateStoreUnavailable: one doesn't answer. One that doesn't run has nothing under way.
        """

        async def ask(ordinal: int) -> None:
            with contextlib.suppress(NotServing):
                await self._send("DELETE", ordinal, "turns", tenant, _TELL)

        self._check_complete(await self._all(ask))

    async def _all(self, ask: Callable[[int], Awaitable[object]]) -> list[Any]:
        """What each other engine says, or how asking it failed."""
        return await asyncio.gather(*map(ask, self._addresses.others), return_exceptions=True)

    def _check_complete(self, answers: list[Any]) -> None:
        """Raise how asking failed, but for engines that there are not.

        A pod that restarts or drains has no name either. Ordinals have no gaps, so one below
        another is missing only for a while; and so is one that was heard not long ago.
        """
        named = [
            ordinal
            for ordinal, answer in zip(self._addresses.others, answers, strict=True)
            if not isinstance(answer, NoEngine)
        ]
        highest = max([*named, self._addresses.own])
        for ordinal, answer in zip(self._addresses.others, answers, strict=True):
            if not isinstance(answer, BaseException):
                continue
            heard = self._clock() - self._heard.get(ordinal, -math.inf) < REMEMBERED_S
            if not isinstance(answer, NoEngine) or ordinal < highest or heard:
                raise answer

    def _home(self, ref: str) -> int:
        home = refs.parse_home(ref)
        if home is None or home.ordinal not in self._addresses.others:
            raise StateNotFound(f"there is no state {ref!r}")
        return home.ordinal

    async def _get(
        self, ordinal: int, path: str, tenant: str, query: dict[str, Any] | None = None
    ) -> httpx.Response:
        return await self._send("GET", ordinal, path, tenant, params=query)

    async def _send(
        self, method: str, ordinal: int, path: str, tenant: str, advice: str = _ASK, **more: Any
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {self._key}", "x-rwkv-tenant": tenant}
        url = f"{self._addresses.url_of(ordinal)}/internal/{path}"
        try:
            answer = await self._client.request(
                method, url, headers=headers, timeout=TIMEOUT, **more
            )
        except httpx.HTTPError as error:
            raise _kind_of(error)(
                f"engine {ordinal} can't be reached ({type(error).__name__}); {advice}",
                retry_after_s=RETRY_AFTER_S,
            ) from None
        self._heard[ordinal] = self._clock()
        if answer.status_code != 200:
            raise _error_of(answer, ordinal, advice)
        return answer


def _kind_of(error: BaseException | None) -> type[StateStoreUnavailable]:
    """What a failed connection says of the engine; of its addresses, all must say the same."""
    while error is not None:
        # A group, which Python 3.10 has no class for.
        kinds = {_kind_of(each) for each in getattr(error, "exceptions", ())}
        if kinds:
            return kinds.pop() if len(kinds) == 1 else StateStoreUnavailable
        if isinstance(error, socket.gaierror) and error.errno in _NO_NAME:
            return NoEngine
        if isinstance(error, ConnectionRefusedError):
            return NotServing
        error = error.__cause__ or error.__context__
    return StateStoreUnavailable


def _error_of(answer: httpx.Response, ordinal: int, advice: str) -> StateError:
    """What an engine refused with; any other answer is none."""
    try:
        error = answer.json()["error"]
        kind, message = _BY_CODE[answer.status_code, error["code"]], str(error["message"])
    except (ValueError, KeyError, TypeError):
        return StateStoreUnavailable(
            f"engine {ordinal} answered {answer.status_code}; {advice}",
            retry_after_s=RETRY_AFTER_S,
        )
    return kind(message)

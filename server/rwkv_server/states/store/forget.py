"""Deleting all of a session or a tenant, so that an interruption leaves no half of it for good.

What is to go is written down before anything goes, and whoever opens or sweeps the store next goes
on. A session ends before its states do: its head never names a state that isn't there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from rwkv_server.states.errors import SessionConflict, StateCorrupt, StateError, StateStoreFull
from rwkv_server.states.store import damaged, headlog, layout, listing
from rwkv_server.states.store.blobs import Blob, BlobExists, BlobMissing, Blobs
from rwkv_server.states.store.heads import SKEW_S, Claim, Heads
from rwkv_server.states.store.records import Records, gathered

_DEADLINE_S = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Intent:
    """What is being deleted.

    Attributes:
        before: only what was made by then, in seconds since 1970.
        claim: of the session's last turn, if the session had a head: its end is what decides.
    """

    tenant: str
    session: str | None
    before: float
    claim: Claim | None = None

    @property
    def key(self) -> str:
        return layout.forgetting(self.tenant, self.session)

    def dump(self) -> bytes:
        return json.dumps(asdict(self)).encode()


class Forgetting:
    """Deletions of many states at once."""

    def __init__(
        self, blobs: Blobs, records: Records, heads: Heads, clock: Callable[[], float]
    ) -> None:
        """Nothing is read yet."""
        self._blobs = blobs
        self._records = records
        self._heads = heads
        self._clock = clock

    async def session(self, tenant: str, session: str) -> int:
        """Delete a session and its states; says how many.

        Raises:
            SessionConflict: a turn is under way.
        """
        await self._clear(layout.forgetting(tenant, session))
        try:
            head, claim = await self._heads.head(tenant, session), None
        except StateCorrupt:
            return await self._damaged_session(tenant, session)
        if head is not None:
            deadline = self._clock() + _DEADLINE_S
            claim = await self._heads.claim(tenant, session, head, deadline)
        return await self._begin(_Intent(tenant, session, self._clock(), claim))

    async def _damaged_session(self, tenant: str, session: str) -> int:
        """Delete a session whose log nobody can read: its states, then the log as it is."""
        removed = await self._begin(_Intent(tenant, session, self._clock()))
        log = await self._blobs.list(layout.heads(tenant, session))
        if log:
            await self._drop_log(log, math.inf)
        return removed

    async def tenant(self, tenant: str) -> int:
        """Delete all that a tenant has; says how many states."""
        await self._clear(layout.forgetting(tenant, None))
        return await self._begin(_Intent(tenant, None, self._clock()))

    async def go_on(self, begun_before: float = math.inf) -> None:
        """Finish what was begun by then; one that can't be finished now is no other's matter."""
        unfinished: dict[str, list[str]] = {}
        for blob in await self._blobs.list(layout.FORGET):
            if blob.modified > begun_before:
                continue  # whoever began it is at it, and counts what goes
            try:
                await self._go_on(blob.key)
            except StateError as error:
                unfinished.setdefault(error.message, []).append(blob.key)
            except Exception:
                log.exception("the erasure %s isn't finished", blob.key)
        for cause, keys in unfinished.items():
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            log.warning("the erasure %s%s isn't finished: %s", keys[0], more, cause)

    async def _clear(self, key: str) -> None:
        """Finish an earlier erasure of the same; what it says doesn't matter if nobody can tell."""
        try:
            await self._go_on(key)
        except StateCorrupt:
            await self._blobs.delete(key)

    async def _begin(self, intent: _Intent) -> int:
        try:
            await self._blobs.create(intent.key, intent.dump())
        except BlobExists:
            raise SessionConflict(
                "another request is deleting the same; try again when it is done", retry_after_s=1
            ) from None
        except StateStoreFull:
            if intent.claim is not None:
                raise
            # Deleting is what helps; should it be interrupted, the next call removes the rest.
        if intent.claim is not None:
            # All that is there under the claim goes, and what comes after it is another session's.
            found = await self._blobs.list(layout.states(intent.tenant))
            await self._heads.forget(intent.claim)
            return await self._finish(replace(intent, before=math.inf), found)
        # What is there now was made before this ends, whatever its maker's clock says.
        skew = SKEW_S if intent.session is None else 0.0
        return await self._finish(replace(intent, before=intent.before + skew))

    async def _go_on(self, key: str) -> None:
        try:
            intent = _parse(await self._blobs.get(key), key)
        except BlobMissing:
            return
        if intent.claim is not None:
            try:
                await self._heads.forget(intent.claim)
            except SessionConflict:
                # It was never answered, and the session has gone on since.
                await self._blobs.delete(key)
                return
        await self._finish(intent)

    async def _finish(self, intent: _Intent, found: Sequence[Blob] | None = None) -> int:
        """Delete what there is, or of what was found; says how many states."""
        await self._end_logs(intent)
        if found is None:
            found = await self._blobs.list(layout.states(intent.tenant))
        removed = await gathered([self._remove(entry, intent) for entry in listing.entries(found)])
        await self._blobs.delete(intent.key)
        return sum(removed)

    async def _end_logs(self, intent: _Intent) -> None:
        if intent.session is not None:
            folder = layout.heads(intent.tenant, intent.session)
            keys = [blob.key for blob in await self._blobs.list(folder)]
            await self._heads.drop_old(folder, keys)
            return
        logs: dict[str, list[Blob]] = {}
        for blob in await self._blobs.list(f"{layout.encode(intent.tenant)}/heads"):
            logs.setdefault(blob.key.rpartition("/")[0], []).append(blob)
        await asyncio.gather(*(self._drop_log(log, intent.before) for log in logs.values()))

    async def _drop_log(self, log: Sequence[Blob], before: float) -> None:
        # By the backend's clock, which may be ahead of ours.
        if max(blob.modified for blob in log) > before + SKEW_S:
            return  # opened anew since
        # Oldest first, and a claim before its end, so that the head is the last to go.
        for key in sorted(blob.key for blob in log):
            await self._blobs.delete(key)

    async def _remove(self, entry: listing.Entry, intent: _Intent) -> bool:
        try:
            record = await self._records.committed_of_entry(entry)
        except StateCorrupt:
            return await self._remove_damaged(entry, intent)
        if record is None or record.created_at > intent.before:
            return False
        if intent.session is not None and record.session != intent.session:
            return False
        await self._records.remove(record)
        return True

    async def _remove_damaged(self, entry: listing.Entry, intent: _Intent) -> bool:
        """As `_remove`, for a record that nobody can read: whose turn it was, it doesn't say."""
        if intent.session is not None or entry.record is None:
            return False
        if entry.record.modified > intent.before + SKEW_S:
            return False
        await damaged.delete_entry(self._blobs, entry)
        return True


def _parse(content: bytes, key: str) -> _Intent:
    try:
        told = json.loads(content)
        claim = told.pop("claim")
        if claim is not None:
            place, begun = headlog.Try(**claim.pop("place")), headlog.Begun(**claim.pop("begun"))
            claim = Claim(place=place, begun=begun, **claim)
        return _Intent(claim=claim, **told)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StateCorrupt(f"{key} of the state store can't be read") from None

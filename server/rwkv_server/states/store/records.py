"""Reading and removing single states: the record, the expiry that counts, and what lies beside.

Knows nothing of quotas, epochs or the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from rwkv_server.states.errors import StateCorrupt, StateExists, StateNotFound
from rwkv_server.states.record import Record, parse_record
from rwkv_server.states.store import layout, listing
from rwkv_server.states.store.blobs import Blob, BlobExists, BlobMissing, Blobs

AT_ONCE = 16
_T = TypeVar("_T")


async def gathered(calls: Sequence[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The results of all calls, a few at a time, so that a long list doesn't fill the store."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(call: Coroutine[Any, Any, _T]) -> _T:
        async with limit:
            return await call

    return await asyncio.gather(*map(one, calls))


class Records:
    """The states in a backend, one at a time."""

    def __init__(self, blobs: Blobs) -> None:
        """Nothing is read yet."""
        self._blobs = blobs

    async def committed(self, tenant: str, ref: str) -> Record:
        """The record as it was committed.

        Raises:
            StateNotFound: there is none.
        """
        try:
            content = await self._blobs.get(layout.record(tenant, ref))
        except BlobMissing:
            raise StateNotFound(f"there is no state {ref!r}") from None
        return _own(parse_record(content, ref), layout.record(tenant, ref))

    async def effective(self, tenant: str, ref: str) -> Record:
        """The record with the expiry that counts.

        Raises:
            StateNotFound: there is none.
        """
        found, later = await asyncio.gather(
            self.committed(tenant, ref), self._blobs.list(layout.expiries(tenant, ref))
        )
        for entry in listing.entries(later):
            expiry = entry.expiry(layout.stamp(found))
            if expiry is not None:
                return await self._with_expiry(found, expiry)
        return found

    async def of_entry(self, entry: listing.Entry) -> Record | None:
        """The record of a listing's entry, with the expiry that counts; None if it has gone.

        Raises:
            StateCorrupt: it can't be read.
        """
        record = await self.committed_of_entry(entry)
        expiry = None if record is None else entry.expiry(layout.stamp(record))
        try:
            if record is None or expiry is None:
                return record
            return await self._with_expiry(record, expiry)
        except StateNotFound:
            return None

    async def committed_of_entry(self, entry: listing.Entry) -> Record | None:
        """As `of_entry`, as it was committed."""
        if entry.record is None:
            return None
        try:
            content = await self._blobs.get(entry.record.key)
        except BlobMissing:
            return None
        return _own(parse_record(content, entry.name), entry.record.key)

    async def touch(self, record: Record, expires_at: float | None) -> Record:
        """Give a state another expiry; of two at the same time the later one counts."""
        folder, mark = layout.expiries(record.tenant, record.ref), layout.stamp(record)
        keys = [layout.parse_state(blob.key) for blob in await self._blobs.list(folder)]
        number = max((key.number for key in keys if key and key.stamp == mark), default=0)
        content = json.dumps({"expires_at": expires_at}).encode()
        while True:
            number += 1
            try:
                await self._blobs.create(f"{folder}/{mark}.{number}", content)
            except BlobExists:
                continue
            return record.model_copy(update={"expires_at": expires_at})

    async def remove(self, record: Record, *, expired: bool = False) -> None:
        """Delete a state: first its record, which ends it, then what lies beside.

        Nothing goes if another state has the name by now.

        Args:
            record: of the state.
            expired: leave a small file that says so.
        """
        tenant, ref, mark = record.tenant, record.ref, layout.stamp(record)
        with contextlib.suppress(StateNotFound):
            if layout.stamp(await self.committed(tenant, ref)) != mark:
                return  # it went, and another has its name
        if expired:
            with contextlib.suppress(BlobExists):
                await self._blobs.create(layout.expired(tenant, ref), b"{}")
        await self._blobs.delete(layout.record(tenant, ref))
        later = await self._blobs.list(layout.expiries(tenant, ref))
        parsed = [(layout.parse_state(blob.key), blob.key) for blob in later]
        keys = [key for told, key in parsed if told is not None and told.stamp == mark]
        keys.append(layout.snapshot(record))
        keys += [layout.document(tenant, ref)]
        keys += [] if expired else [layout.expired(tenant, ref)]
        await gathered([self._blobs.delete(key) for key in keys])

    async def put_document(self, tenant: str, ref: str, content: bytes) -> None:
        """Keep the answer that goes with a state of that name.

        Raises:
            StateExists: there is another one.
        """
        try:
            await self._blobs.create(layout.document(tenant, ref), content)
        except BlobExists:
            if await self.document(tenant, ref) != content:
                raise StateExists(f"there is an answer {ref!r} already") from None

    async def document(self, tenant: str, ref: str) -> bytes:
        """What was kept.

        Raises:
            StateNotFound: nothing was.
        """
        try:
            return await self._blobs.get(layout.document(tenant, ref))
        except BlobMissing:
            raise StateNotFound(f"there is no answer {ref!r}") from None

    async def _with_expiry(self, record: Record, expiry: Blob) -> Record:
        try:
            content = await self._blobs.get(expiry.key)
        except BlobMissing:
            raise StateNotFound(f"there is no state {record.ref!r}") from None
        try:
            expires_at = json.loads(content)["expires_at"]
        except (ValueError, KeyError, TypeError):
            raise StateCorrupt(f"{expiry.key} of the state store can't be read") from None
        return record.model_copy(update={"expires_at": expires_at})


def _own(record: Record, key: str) -> Record:
    """The record, if it belongs under its key: files may have been copied by hand.

    Raises:
        StateCorrupt: it's of another tenant, or has another name.
    """
    if layout.record(record.tenant, record.ref) != key:
        raise StateCorrupt(
            f"{key} of the state store is the record of another state or tenant: wanted one that "
            "was written there; copy states with export and import"
        )
    return record

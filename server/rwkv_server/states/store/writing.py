"""Committing a state: its snapshot, then the record that makes it count. No quotas."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from rwkv_server.states.errors import StateCorrupt, StateExists, StateNotFound
from rwkv_server.states.held import Content
from rwkv_server.states.record import Record, dump_record
from rwkv_server.states.store import layout
from rwkv_server.states.store.blobs import BlobExists, Blobs, Commit
from rwkv_server.states.store.records import Records

_TRIES = 3


class Writer:
    """Commits states to a backend."""

    def __init__(self, blobs: Blobs, records: Records) -> None:
        """Nothing is written yet."""
        self._blobs, self._records = blobs, records
        self._under_way: set[str] = set()

    @property
    def under_way(self) -> Collection[str]:
        """Keys of the snapshots that are being committed now."""
        return self._under_way

    async def commit(self, record: Record, data: Content, epoch: str) -> Record:
        """Write both, and return the record with the snapshot's size and digest and the epoch.

        The same call again, after an error, succeeds if the first one did in truth.

        Raises:
            StateExists: the name is taken.
        """
        made: list[Record] = []

        def describe(digest: bytes) -> Commit:
            told = {"nbytes": data.nbytes, "sha256": digest.hex(), "epoch": epoch}
            made.append(record.model_copy(update=told))
            self._under_way.add(layout.snapshot(made[0]))
            return _commit_of(made[0])

        try:
            await self._blobs.commit(layout.states(record.tenant), data, describe)
        except BlobExists:
            await self._commit_again(made[0])
        finally:
            self._under_way.difference_update(map(layout.snapshot, made))
        return made[0]

    async def _commit_again(self, record: Record) -> None:
        """Commit a record whose snapshot is there, although something had its name."""
        told = _commit_of(record)
        for _ in range(_TRIES):
            try:
                found = await self._records.committed(record.tenant, record.ref)
            except StateNotFound:  # deleted just now
                with suppress(BlobExists):
                    await self._blobs.create(told.record, told.content)
                    return
                continue
            except StateCorrupt:
                break
            if layout.stamp(found) == layout.stamp(record):
                return  # our own, of an earlier try
            break
        await self._blobs.delete(told.data)
        raise taken(record.ref)


def _commit_of(record: Record) -> Commit:
    key = layout.record(record.tenant, record.ref)
    return Commit(layout.snapshot(record), key, dump_record(record))


def taken(ref: str) -> StateExists:
    """That a name can't be used."""
    return StateExists(
        f"state {ref} is there already, or expired within the last minutes: choose another name, "
        "or delete it first"
    )

"""Lists of a tenant's states, a page at a time, in order of their names."""

from __future__ import annotations

from dataclasses import dataclass

from rwkv_server.states.errors import StateCorrupt
from rwkv_server.states.record import Record
from rwkv_server.states.store import layout, listing
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.records import AT_ONCE, Records, gathered


@dataclass(frozen=True)
class Wanted:
    """Which states: of one session or of all, after that name, at most so many."""

    tenant: str
    session: str | None
    after: str | None
    limit: int


@dataclass(frozen=True)
class Page:
    """Some states of a tenant; `after` asks for the next page, None is the end."""

    records: tuple[Record, ...]
    after: str | None


def order(record: Record) -> str:
    """What lists are sorted by: the name as the store has it, where long ones are digests."""
    return layout.encode(record.ref)


async def read_page(blobs: Blobs, records: Records, wanted: Wanted, now: float) -> Page:
    """The next states that have not expired by `now`, without those that can't be read."""
    start = "" if wanted.after is None else layout.encode(wanted.after)
    found = listing.entries(await blobs.list(layout.states(wanted.tenant)))
    rest = [entry for entry in found if entry.name > start and entry.record is not None]
    chosen: list[Record] = []
    for first in range(0, len(rest), AT_ONCE):
        some = rest[first : first + AT_ONCE]
        read = await gathered([_read(records, entry) for entry in some])
        chosen += [r for r in read if r is not None and _is_wanted(r, wanted, now)]
        if len(chosen) > wanted.limit:
            return Page(tuple(chosen[: wanted.limit]), chosen[wanted.limit - 1].ref)
    return Page(tuple(chosen), None)


async def _read(records: Records, entry: listing.Entry) -> Record | None:
    try:
        return await records.of_entry(entry)
    except StateCorrupt:
        return None


def _is_wanted(record: Record, wanted: Wanted, now: float) -> bool:
    mine = wanted.session is None or record.session == wanted.session
    return mine and not record.has_expired(now)

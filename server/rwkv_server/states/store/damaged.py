"""States whose record nobody can read: it was damaged, or a later version wrote it.

Lists pass over them, the sweep counts them, and their name stays taken until they are deleted.
"""

from __future__ import annotations

from rwkv_server.states.store import layout, listing
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.listing import Entry


async def delete(blobs: Blobs, tenant: str, ref: str) -> None:
    """Delete what lies under a name, without reading it."""
    name = layout.encode(ref)
    for entry in listing.entries(await blobs.list(layout.states(tenant))):
        if entry.name == name:
            await delete_entry(blobs, entry)


async def delete_entry(blobs: Blobs, entry: Entry) -> None:
    """Delete a record, and then what lies beside it.

    A snapshot is written before its record: a later one belongs to who saves under this name now.
    """
    if entry.record is None:
        return
    await blobs.delete(entry.record.key)
    for key, blob in entry.others:
        if key.part != "snapshot" or blob.modified <= entry.record.modified:
            await blobs.delete(blob.key)

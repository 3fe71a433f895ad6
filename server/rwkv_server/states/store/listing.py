"""What a listing of a tenant's states says, one entry a state. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rwkv_server.states.store import layout
from rwkv_server.states.store.blobs import Blob
from rwkv_server.states.store.layout import StateKey


@dataclass
class Entry:
    """All files of one name.

    Attributes:
        name: the ref, encoded; orders entries.
        record: the file whose existence makes the state; None for leftovers.
        others: the rest, each with what its key says.
    """

    name: str
    record: Blob | None = None
    others: list[tuple[StateKey, Blob]] = field(default_factory=list)

    def expiry(self, stamp: str) -> Blob | None:
        """The file with the expiry that counts, of the record with that stamp."""
        mine = [
            (key.number, blob)
            for key, blob in self.others
            if key.part == "expiry" and key.stamp == stamp
        ]
        return max(mine, key=lambda pair: pair[0])[1] if mine else None


def entries(blobs: Iterable[Blob]) -> list[Entry]:
    """The states of one tenant, by name; keys that aren't states' are passed over."""
    found: dict[str, Entry] = {}
    for blob in blobs:
        key = layout.parse_state(blob.key)
        if key is None:
            continue
        entry = found.setdefault(key.name, Entry(key.name))
        if key.part == "record":
            entry.record = blob
        else:
            entry.others.append((key, blob))
    return sorted(found.values(), key=lambda entry: entry.name)

"""The store's name for itself: made once, by whoever comes first, and as old as the store."""

from __future__ import annotations

import re
from collections.abc import Callable

from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.store import layout
from rwkv_server.states.store.blobs import BlobExists, BlobMissing, Blobs

LENGTH = 8
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_EPOCH = re.compile(rf"[0-9a-z]{{{LENGTH}}}")


async def read_epoch(blobs: Blobs, random_bytes: Callable[[int], bytes]) -> str:
    """The epoch in the store; a store without one gets one.

    Raises:
        StateStoreUnavailable: also when what is there isn't an epoch.
    """
    try:
        content = await blobs.get(layout.EPOCH)
    except BlobMissing:
        try:
            await blobs.create(layout.EPOCH, _make(random_bytes).encode())
        except BlobExists:
            pass  # another engine was faster
        content = await blobs.get(layout.EPOCH)
    epoch = content.decode(errors="replace")
    if not _EPOCH.fullmatch(epoch):
        raise StateStoreUnavailable(
            f"the state store's {layout.EPOCH} holds {epoch[:40]!r}; wanted {LENGTH} letters and "
            "digits. Another program wrote there: give the states a folder of their own."
        )
    return epoch


def _make(random_bytes: Callable[[int], bytes]) -> str:
    number = int.from_bytes(random_bytes(LENGTH), "big")
    characters = []
    for _ in range(LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[digit])
    return "".join(characters)

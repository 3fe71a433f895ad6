"""Stores of saved states for tests: records, clocks, and backends without a network."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path

from obstore.store import MemoryStore

from rwkv_server.states.record import Fingerprint, Record
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.disk import Disk, SystemDisk
from rwkv_server.states.store.objects import ObjectBlobs
from rwkv_server.states.store.place import Place
from rwkv_server.states.store.states import StateStore
from rwkv_server.states.store.threads import Threads
from rwkv_server.states.store.volume import VolumeBlobs

START = time.time()
FINGERPRINT = Fingerprint(model="m" * 64, tokenizer="t" * 64, layout=1, dtype="float32")


class Clock:
    """A time that only moves when a test says so, and a little at each look.

    It begins at the real one, which files get.
    """

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def seeded(seed: int = 0) -> Callable[[int], bytes]:
    """Random bytes that are the same in every run."""
    return random.Random(seed).randbytes


def volume(folder: Path, disk: Disk | None = None, seed: int = 0) -> Blobs:
    """A backend in a folder."""
    return VolumeBlobs(folder, "ns/chat", disk or SystemDisk(), Threads(4), seeded(seed))


def memory() -> Blobs:
    """A backend in memory, by obstore."""
    return ObjectBlobs(MemoryStore(), "ns/chat", "memory")


def store_on(
    blobs: Blobs,
    clock: Callable[[], float],
    *,
    shared: bool = True,
    ordinal: int = 0,
    quota: int | None = None,
    seed: int = 0,
) -> StateStore:
    """A store over a backend."""
    kind = "persistentVolumeClaim" if shared else "perPod"
    return StateStore(blobs, Place(kind, shared, ordinal, quota), clock, seeded(seed))


_moments = itertools.count(1)


def make_record(ref: str, tenant: str = "default", **changes: object) -> Record:
    """A record as turns make it, before the store has filled in its part."""
    told: dict[str, object] = {
        "ref": ref,
        "parent": None,
        "tenant": tenant,
        "session": None,
        "fingerprint": FINGERPRINT,
        "nbytes": 0,
        "sha256": "",
        "consumed_tokens": 3,
        "pending": (7, 8),
        "finish_reason": "stop",
        "created_at": START + next(_moments) / 2**20,
        "expires_at": None,
        "epoch": "",
    }
    return Record.model_validate({**told, **changes})


async def take_turn(store: StateStore, clock: Clock, ref: str, session: str = "s") -> None:
    """A session's next turn, from its claim to its end, whose state is `ref`."""
    head = await store.head("default", session)
    claim = await store.claim("default", session, head, clock.now + 60)
    await store.put(make_record(ref, session=session), ref.encode())
    await store.end(claim, ref)

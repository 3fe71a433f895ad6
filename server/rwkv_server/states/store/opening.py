"""From the settings to a store.

Sends and reads nothing yet, so that a store that is down is no reason not to start.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rwkv_server.errors import StoreError
from rwkv_server.preflight import s3
from rwkv_server.settings import State
from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.disk import SystemDisk
from rwkv_server.states.store.objects import ObjectBlobs
from rwkv_server.states.store.place import Place
from rwkv_server.states.store.retried import RetriedBlobs
from rwkv_server.states.store.states import StateStore
from rwkv_server.states.store.threads import Threads
from rwkv_server.states.store.timed import TimedBlobs
from rwkv_server.states.store.volume import VolumeBlobs

TIMEOUT_S = 10.0
THREADS = 8
PAUSES_S = (0.1, 0.5)


def build_store(
    state: State,
    deployment: str,
    ordinal: int,
    clock: Callable[[], float],
    random_bytes: Callable[[int], bytes],
) -> StateStore:
    """The store of one engine.

    Args:
        state: which store, and the tenants' limit.
        deployment: `<namespace>/<name>`, the folder of all keys.
        ordinal: the engine's number.
        clock: seconds since 1970.
        random_bytes: such as `secrets.token_bytes`.

    Raises:
        StateStoreUnavailable: the credentials can't be read.
    """
    place = Place(state.store, state.shared, ordinal, state.max_bytes_per_tenant)
    blobs = TimedBlobs(_backend(state, deployment, random_bytes), TIMEOUT_S)
    return StateStore(blobs, place, clock, random_bytes)


def _backend(state: State, deployment: str, random_bytes: Callable[[int], bytes]) -> Blobs:
    if state.s3 is not None:
        try:
            bucket = s3.open_bucket(state.s3)
        except StoreError as error:
            raise StateStoreUnavailable(error.message) from error
        return RetriedBlobs(ObjectBlobs(bucket, deployment, s3.place(state.s3)), PAUSES_S)
    if state.path is None:
        raise ValueError("neither a path nor a bucket")
    threads = Threads(THREADS)
    return VolumeBlobs(Path(state.path), deployment, SystemDisk(), threads, random_bytes)

"""A process that takes turns of a session, as many others do at the same time."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from pathlib import Path

from state_stores import make_record, store_on, volume

from rwkv_server.preflight import s3
from rwkv_server.settings import S3
from rwkv_server.states.errors import SessionConflict
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.objects import ObjectBlobs


def backend(where: str) -> Blobs:
    """A folder, or a bucket's settings as JSON."""
    if where.startswith("{"):
        return ObjectBlobs(s3.open_bucket(S3.model_validate_json(where)), "ns/chat", "bucket")
    return volume(Path(where), seed=secrets.randbits(48))


async def race(where: str, turns: int, ordinal: int) -> None:
    """Print the states that were committed as turns, with the one each came after.

    Begins when a line comes in, ends when the session has that many turns.
    """
    run = secrets.token_hex(6)
    store = store_on(backend(where), time.time, ordinal=ordinal, seed=secrets.randbits(48))
    print("ready", flush=True)
    sys.stdin.readline()
    conflicts, number = 0, 0
    while True:
        head = await store.head("default", "s")
        if head is not None and head.turn >= turns:
            break
        try:
            claim = await store.claim("default", "s", head, time.time() + 60)
        except SessionConflict:
            conflicts += 1
            await asyncio.sleep(0.002)
            continue
        ref, parent = f"{run}-{number}", head.ref if head else None
        number += 1
        if number % 5 == 0:
            await store.end(claim, None)
            continue
        record = make_record(ref, session="s", parent=parent, created_at=time.time())
        await store.put(record, ref.encode())
        await store.end(claim, ref)
        print(json.dumps({"ref": ref, "parent": parent}))
    print(json.dumps({"conflicts": conflicts}), flush=True)


if __name__ == "__main__":
    asyncio.run(race(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

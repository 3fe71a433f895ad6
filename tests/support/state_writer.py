"""A process that saves states until it is killed, and says after each what it was told."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from pathlib import Path

from state_stores import make_record, store_on, volume


async def write(folder: Path) -> None:
    """Turns of one session, each with a state whose content is its name."""
    run = secrets.randbits(48)
    store = store_on(volume(folder, seed=run), time.time, seed=run)
    print("started", flush=True)
    number = 0
    while True:
        ref = f"{run:x}-{number}"
        head = await store.head("default", "s")
        # One of the process before this one, which is dead, ends with that.
        claim = await store.claim("default", "s", head, time.time() + 60)
        record = make_record(ref, session="s", created_at=time.time())
        await store.put(record, ref.encode() * 1000)
        await store.end(claim, ref)
        print(f"saved {ref}", flush=True)
        number += 1


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1])))

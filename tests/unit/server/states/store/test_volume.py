from __future__ import annotations

import asyncio
import errno
import gc
import os
import re
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
from state_stores import Clock, make_record, seeded, store_on, take_turn, volume

from rwkv_server.states.errors import StateStoreFull, StateStoreUnavailable
from rwkv_server.states.held import Piece
from rwkv_server.states.store.disk import SystemDisk
from rwkv_server.states.store.threads import Threads
from rwkv_server.states.store.timed import TimedBlobs
from rwkv_server.states.store.volume import VolumeBlobs


class FailingDisk(SystemDisk):
    """Writes and reads fail with this number of the system's."""

    def __init__(self, number: int) -> None:
        self.number = number

    def write(self, path: Path, *pieces: Piece) -> None:
        raise OSError(self.number, os.strerror(self.number))

    def read(self, path: Path) -> bytes:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, StateStoreFull, "volume is full"),
        (errno.EDQUOT, StateStoreFull, "volume is full"),
        (errno.EROFS, StateStoreUnavailable, "read-only flag"),
        (errno.EACCES, StateStoreUnavailable, "owner, fsGroup"),
        (errno.EIO, StateStoreUnavailable, "EIO"),
        (errno.ESTALE, StateStoreUnavailable, "ESTALE"),
    ],
)
async def test_errors_of_the_volume_are_told_apart(number, kind, words, tmp_path):
    blobs = volume(tmp_path, FailingDisk(number))
    for call in (blobs.create("k", b"1"), blobs.get("k")):
        with pytest.raises(kind, match=words):
            await call


async def test_a_volume_that_isnt_mounted(tmp_path):
    with pytest.raises(StateStoreUnavailable, match="ENOENT"):
        await volume(tmp_path / "gone").create("k", b"1")


async def test_a_folder_that_somebody_removed_is_made_again(tmp_path):
    blobs = volume(tmp_path)
    await blobs.create("a/b/k", b"1")
    shutil.rmtree(tmp_path / "ns")
    with pytest.raises(StateStoreUnavailable):
        await blobs.create("a/b/k", b"1")
    await blobs.create("a/b/k", b"1")
    assert await blobs.get("a/b/k") == b"1"


async def test_links_are_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    root = tmp_path / "volume"
    (root / "ns/chat").mkdir(parents=True)
    (root / "ns/chat/k").symlink_to(secret)
    with pytest.raises(StateStoreUnavailable, match="ELOOP"):
        await volume(root).get("k")
    assert list(await volume(root).list("")) == []


async def test_what_killed_writers_left_is_cleaned(tmp_path):
    blobs = volume(tmp_path)
    await blobs.create("a/k", b"1")
    left = tmp_path / "ns/chat/a/.0123456789ab"
    left.write_bytes(b"half")
    assert [blob.key for blob in await blobs.list("")] == ["a/k"]
    made = left.stat().st_mtime
    assert await blobs.clean(made - 10) == 0
    assert await blobs.clean(made + 10) == 1
    assert not left.exists() and await blobs.get("a/k") == b"1"


class HangingDisk(SystemDisk):
    """Every write waits for `let_go`."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def write(self, path: Path, *pieces: Piece) -> None:
        self.let_go.wait(30)
        super().write(path, *pieces)


async def test_a_hanging_volume_keeps_nobody_else_waiting(tmp_path):
    disk = HangingDisk()
    untimed = VolumeBlobs(tmp_path, "ns/chat", disk, Threads(2), seeded())
    blobs = TimedBlobs(untimed, 0.05)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    ticking = asyncio.create_task(tick())
    for number in range(5):  # more than there are threads
        with pytest.raises(StateStoreUnavailable, match=r"a write within 0.05 s"):
            await blobs.create(f"k{number}", b"1")
    ticking.cancel()
    assert ticks > 10
    disk.let_go.set()
    while len(await untimed.list("")) < 2:
        await asyncio.sleep(0.01)
    # Those that had not begun when they were given up never do.
    await untimed.create("last", b"1")
    assert [blob.key for blob in await untimed.list("")] == ["k0", "k1", "last"]


async def test_a_state_that_was_given_up_is_not_there_later(tmp_path):
    disk = HangingDisk()
    blobs = VolumeBlobs(tmp_path, "ns/chat", disk, Threads(1), seeded())
    store = store_on(blobs, Clock())
    disk.let_go.set()
    await store.open()
    disk.let_go.clear()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(store.put(make_record("r"), b"1"), 0.05)
    disk.let_go.set()
    left = [blob.key for blob in await blobs.list("")]  # by the same thread, after it
    assert left == ["_epoch"]
    assert (await store.put(make_record("r"), b"2")).ref == "r"


async def test_a_cancelled_call_is_cancelled(tmp_path):
    disk = HangingDisk()
    blobs = TimedBlobs(VolumeBlobs(tmp_path, "ns/chat", disk, Threads(1), seeded()), 30)
    writing = asyncio.create_task(blobs.create("k", b"1"))
    await asyncio.sleep(0.01)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    disk.let_go.set()


PUT = """
import asyncio, pathlib, sys
sys.path[:0] = {path!r}
from state_stores import Clock, make_record, store_on, volume
from rwkv_server.states.store import layout
async def main():
    store = store_on(volume(pathlib.Path({folder!r})), Clock())
    await store.put(make_record("first"), b"x")
    print("SECOND", flush=True)
    await store.put(make_record("second"), b"y" * 70000)
    print("DONE", flush=True)
asyncio.run(main())
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_the_kernel_is_asked_to_sync_before_the_answer(tmp_path):
    folder, trace = tmp_path / "volume", tmp_path / "trace"
    folder.mkdir()
    paths = [path for path in sys.path if "support" in path or path.endswith("server")]
    calls = "openat,fsync,fdatasync,link,linkat,write,mkdir"
    program = PUT.format(path=paths, folder=str(folder))
    done = subprocess.run(
        ["strace", "-f", "-y", "-e", f"trace={calls}", "-o", trace, sys.executable, "-c", program],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = trace.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if "SECOND" in line)
    end = next(i for i, line in enumerate(lines) if "DONE" in line)
    seen = [step for line in lines[begin:end] if (step := _step(line))]
    shown = ["link", "sync folder"]
    assert seen == ["sync file", "sync file", *shown, *shown], "both files, then one name each"


def _step(line: str) -> str | None:
    if "linkat(" in line or " link(" in line:
        return "link"
    synced = re.search(r"fsync\(\d+<([^>]*)>", line)
    if synced is None:
        return None
    return "sync file" if Path(synced[1]).name.startswith(".") else "sync folder"


async def test_a_disk_that_is_full_keeps_what_is_there(tmp_path):
    clock = Clock()
    store = store_on(volume(tmp_path), clock)
    await store.put(make_record("r1"), b"1")
    full = store_on(volume(tmp_path, FullDisk()), clock, seed=1)
    with pytest.raises(StateStoreFull):
        await full.put(make_record("r2"), b"2")
    assert await full.content(await full.get("default", "r1")) == b"1"
    assert [r.ref for r in (await full.page("default", None, None, 9)).records] == ["r1"]
    await full.delete("default", "r1")


async def test_all_of_a_tenant_can_be_erased_on_a_full_disk(tmp_path):
    clock = Clock()
    store = store_on(volume(tmp_path), clock)
    for ref in ("r1", "r2"):
        await take_turn(store, clock, ref)
    full = store_on(volume(tmp_path, FullDisk()), clock, seed=1)
    assert await full.forget_tenant("default") == 2
    assert [blob.key for blob in await full.blobs.list("default")] == []


class FullDisk(SystemDisk):
    """No byte more."""

    def write(self, path: Path, *pieces: Piece) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_call_that_was_given_up_keeps_nothing_in_memory():
    class Snapshot:
        pass

    threads, let_go, snapshot = Threads(1), threading.Event(), Snapshot()
    alive = weakref.ref(snapshot)
    hanging = asyncio.create_task(threads.run(lambda: let_go.wait(30)))
    waiting = asyncio.create_task(threads.run(lambda kept=snapshot: kept))
    del snapshot
    await asyncio.sleep(0.01)
    assert alive() is not None
    waiting.cancel()
    await asyncio.wait({waiting})
    del waiting
    gc.collect()
    assert alive() is None
    let_go.set()
    await hanging

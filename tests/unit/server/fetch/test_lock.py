from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time

import pytest

from rwkv_server.fetch.lock import Lock, LockLost, Timing

FAST = Timing(beat=0.01, stale=60, poll=0.005)
NEVER = Timing(beat=1000, stale=60, poll=1)


def not_done():
    return False


class World:
    """A clock that moves when somebody sleeps, and what the waiter was told."""

    def __init__(self):
        self.now = 0.0
        self.told = []
        self.on_sleep = lambda: None

    def sleep(self, seconds):
        self.now += seconds
        self.on_sleep()

    def take(self, lock, is_done=not_done):
        return lock.acquire(
            is_done, lambda owner, note: self.told.append((owner, note)), lambda: self.now,
            self.sleep,
        )  # fmt: skip


def claims(folder):
    return sorted(path.name for path in folder.glob("*.json"))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "model.lock"


def test_the_first_one_has_it_at_once(folder):
    world = World()
    assert world.take(Lock(folder, "a", NEVER))
    assert (world.now, world.told) == (0.0, [])
    assert json.loads((folder / "1.json").read_text())["owner"] == "a"


def test_a_silent_holder_is_dead_after_a_while_by_the_waiters_own_clock(folder):
    world = World()
    assert world.take(Lock(folder, "a", NEVER))
    assert world.take(Lock(folder, "b", NEVER))
    assert 60 <= world.now <= 62
    assert claims(folder) == ["1.json", "2.json"]
    assert world.told[0] == ("a", {})


def test_a_holder_that_beats_is_waited_for(folder):
    world = World()
    holder = Lock(folder, "a", NEVER)
    assert world.take(holder)
    beats = []

    def beat():
        if len(beats) < 500:
            holder.note(bytes=len(beats), total=9)
            holder._beats += 1
            holder._write(released=False)
            beats.append(world.now)

    world.on_sleep = beat
    assert world.take(Lock(folder, "b", NEVER))
    assert world.now >= 560
    assert world.told[3] == ("a", {"bytes": 2, "total": 9})


def test_a_released_lock_is_free(folder):
    world = World()
    holder = Lock(folder, "a", NEVER)
    assert world.take(holder)
    with holder:
        pass
    assert world.take(Lock(folder, "b", NEVER))
    assert world.now == 0.0


def test_a_pods_own_old_claim_is_its_earlier_container(folder):
    world = World()
    assert world.take(Lock(folder, "a", NEVER))
    assert world.take(Lock(folder, "a", NEVER))
    assert world.now == 0.0


def test_nobody_takes_what_is_done(folder):
    world = World()
    world.take(Lock(folder, "a", NEVER))
    done = iter([False, False, True])
    assert not world.take(Lock(folder, "b", NEVER), lambda: next(done))
    assert claims(folder) == ["1.json"]


def test_a_claim_whose_content_isnt_there_yet_is_not_free(folder):
    folder.mkdir()
    (folder / "1.json").touch()
    world = World()
    assert world.take(Lock(folder, "b", NEVER))
    assert world.now >= 60


def test_a_holder_that_was_overtaken_stops_and_leaves_the_other_alone(folder):
    slow = Lock(folder, "a", FAST)
    assert World().take(slow)
    lost = threading.Event()
    with pytest.raises(LockLost), slow:
        (folder / "2.json").write_text(json.dumps({"owner": "b", "token": "other"}))
        while not lost.wait(0.005):
            slow.check()
    assert json.loads((folder / "2.json").read_text()) == {"owner": "b", "token": "other"}
    assert not json.loads((folder / "1.json").read_text())["released"]


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def failing(real, failures):
    """`real`, after `failures` errors of a volume."""
    left = iter(range(failures))

    def call(*arguments, **options):
        if next(left, None) is not None:
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(*arguments, **options)

    return call


@pytest.mark.parametrize("what", ["_highest", "_write"])
def test_a_volume_in_trouble_for_a_moment_ends_no_beating(folder, monkeypatch, what):
    lock = Lock(folder, "a", FAST)
    assert World().take(lock)
    monkeypatch.setattr(lock, what, failing(getattr(lock, what), 3))
    with lock:
        wait_until(lambda: b'"beat": 5' in (folder / "1.json").read_bytes())
        lock.check()


@pytest.mark.parametrize("what", ["_highest", "_write"])
def test_who_cant_beat_for_long_has_lost(folder, monkeypatch, what):
    lock = Lock(folder, "a", Timing(beat=0.01, stale=0.3, poll=1))
    assert World().take(lock)
    monkeypatch.setattr(lock, what, failing(getattr(lock, what), 1_000_000))

    def is_lost():
        try:
            lock.check()
        except LockLost:
            return True
        return False

    with lock:
        wait_until(is_lost)


def test_a_write_that_hangs_is_no_beat(folder, monkeypatch):
    lock = Lock(folder, "a", Timing(beat=0.01, stale=0.3, poll=1))
    assert World().take(lock)
    free = threading.Event()
    monkeypatch.setattr(lock, "_write", lambda released: free.wait(30))
    with lock:
        time.sleep(0.4)
        with pytest.raises(LockLost, match="couldn't be written for"):
            lock.check()
        free.set()


@pytest.mark.parametrize("moment", ["mkdir", "open", "glob"])
def test_a_holder_that_finishes_at_any_moment(folder, monkeypatch, moment):
    """Its folder goes away between two of the waiter's calls; then the model is there."""
    module, name = (os, "open") if moment == "open" else (type(folder), moment)
    real = getattr(module, name)
    finished = []

    def vanish(path, *arguments, **options):
        if not finished:
            finished.append(True)
            if moment == "mkdir":
                raise FileExistsError(path)
            shutil.rmtree(folder)
            raise FileNotFoundError(path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(module, name, vanish)
    assert not World().take(Lock(folder, "b", NEVER), lambda: bool(finished))


def test_of_many_waiters_one_takes_a_free_place(folder):
    folder.mkdir()
    # Of a pod that went in good order: nobody's clock decides, only who is first.
    (folder / "1.json").write_text('{"released": true}')
    inside, most, finished = [], [], threading.Event()

    def work(name):
        lock = Lock(folder, name, FAST)
        if lock.acquire(finished.is_set, lambda owner, note: None):
            with lock:
                inside.append(name)
                most.append(len(inside))
                threading.Event().wait(0.05)
                lock.check()
                inside.remove(name)

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most == [1] * 8


def test_removed_it_leaves_nothing(folder):
    lock = Lock(folder, "a", FAST)
    World().take(lock)
    with lock:
        lock.remove()
    assert not folder.exists()

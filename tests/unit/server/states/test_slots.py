from __future__ import annotations

import mmap
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rwkv_server.states import slots
from rwkv_server.states.slots import Lease, SlotError, SlotFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "slots"


def test_two_mappings_see_the_same_bytes(path: Path) -> None:
    here = SlotFile.create(path, nbytes=100, count=3)
    there = SlotFile.open(path, nbytes=100)
    here.renew(2, 7)
    with there.hold(Lease(2, 7)) as view:
        view[:] = bytes(range(100))
    assert bytes(here.view(2)) == bytes(range(100))
    assert bytes(here.view(1)) == bytes(100)


def test_populated_memory_is_written_without_stops(path: Path) -> None:
    nbytes, count = 1 << 20, 3
    SlotFile.create(path, nbytes, count).view(1)[:3] = b"abc"
    there = SlotFile.open(path, nbytes)
    there.populate()
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for slot in range(count):
        view = there.view(slot)
        for page in range(8, nbytes, mmap.PAGESIZE):
            view[page] = 1
    stops = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
    assert stops < count * nbytes // mmap.PAGESIZE // 2
    assert bytes(there.view(1)[:3]) == b"abc"


def test_a_closed_file_is_not_populated(path: Path) -> None:
    file = SlotFile.create(path, nbytes=8, count=1)
    file.close()
    file.populate()


@pytest.mark.parametrize("lease", [Lease(0, 1), Lease(0, 3), Lease(3, 2), Lease(-1, 2)], ids=str)
def test_a_slot_is_held_by_its_present_lease_only(path: Path, lease: Lease) -> None:
    file = SlotFile.create(path, nbytes=8, count=3)
    file.renew(0, 2)
    with file.hold(Lease(0, 2)):
        pass
    with pytest.raises(SlotError), file.hold(lease):
        pass


def test_a_slot_that_is_held_gets_no_new_lease(path: Path) -> None:
    owner = SlotFile.create(path, nbytes=8, count=2)
    worker, another = SlotFile.open(path, 8), SlotFile.open(path, 8)
    owner.renew(0, 1)
    with worker.hold(Lease(0, 1)):
        with another.hold(Lease(0, 1)):  # ranks write their parts at the same time
            assert not owner.renew(0, 2)
        assert not owner.renew(0, 2)
        assert owner.renew(1, 2)
    assert owner.renew(0, 3)


WORKER = """
import pathlib, sys
from rwkv_server.states.slots import Lease, SlotFile
file = SlotFile.open(pathlib.Path(sys.argv[1]), 8)
with file.hold(Lease(0, 1)):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_worker_that_is_killed_lets_go(path: Path) -> None:
    owner = SlotFile.create(path, 8, 1)
    owner.renew(0, 1)
    command = [sys.executable, "-c", WORKER, str(path)]
    env = os.environ | {"PYTHONPATH": str(Path(slots.__file__).parents[2])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=env, text=True, **pipes) as worker:
        assert worker.stdout is not None and worker.stdout.readline() == "held\n"
        assert not owner.renew(0, 2)
        worker.kill()
    assert owner.renew(0, 2)


@pytest.mark.parametrize("content", [b"", b"something else, and long enough to be a header"])
def test_other_files_are_no_slots(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(SlotError, match="wanted 8"):
        SlotFile.open(path, nbytes=8)


def test_a_file_that_isn_t_there_and_one_of_another_size(path: Path) -> None:
    with pytest.raises(SlotError, match="No such file"):
        SlotFile.open(path, nbytes=8)
    SlotFile.create(path, nbytes=16, count=1)
    with pytest.raises(SlotError, match="slots of 16 bytes, wanted 8"):
        SlotFile.open(path, nbytes=8)


def test_memory_that_can_t_be_had_is_an_error_at_once(path: Path) -> None:
    with pytest.raises(SlotError, match="make /dev/shm larger or hotBytes smaller"):
        SlotFile.create(path, nbytes=1 << 50, count=1)
    assert not path.exists()


def test_a_file_of_an_earlier_process_is_replaced(path: Path) -> None:
    SlotFile.create(path, nbytes=8, count=1).renew(0, 5)
    new = SlotFile.create(path, nbytes=8, count=1)
    with pytest.raises(SlotError), new.hold(Lease(0, 5)):
        pass

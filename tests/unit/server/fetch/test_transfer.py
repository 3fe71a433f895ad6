from __future__ import annotations

import hashlib
import shutil

import pytest

from rwkv_server.errors import DiskFull, DownloadFailed
from rwkv_server.fetch import transfer
from rwkv_server.fetch.folder import Folder, Origin
from rwkv_server.fetch.hub import HubUnavailable, RemoteFile

CONTENT = bytes(range(256)) * 40
FILE = RemoteFile("m.safetensors", len(CONTENT), "sha256:" + hashlib.sha256(CONTENT).hexdigest())


class FakeHub:
    """Gives `step` bytes at a time and then fails, as often as `failures` says."""

    label = "hub org/m@main"

    def __init__(self, step=1000, failures=10**9, content=CONTENT):
        self.step, self.failures, self.content = step, failures, content
        self.offsets = []

    def copy(self, file, commit, sink):
        self.offsets.append(sink.offset)
        if self.failures > 0:
            self.failures -= 1
            sink.write(self.content[sink.offset : sink.offset + self.step])
            raise HubUnavailable("the line is bad")
        sink.write(self.content[sink.offset :])


class Meter:
    def __init__(self):
        self.counted, self.verified = [], []

    def arrived(self, count):
        self.counted.append(count)

    def verifying(self, file):
        self.verified.append(file.name)


@pytest.fixture
def folder(tmp_path):
    found = Folder(tmp_path / "model", Origin("huggingFace", "org/m", "main"))
    found.start()
    return found


@pytest.fixture
def waits():
    return []


@pytest.fixture
def patience(waits):
    return transfer.Patience(tries=3, sleep=waits.append, spread=lambda: 0.5)


def fetch(hub, folder, patience, file=FILE):
    meter = Meter()
    transfer.fetch_file(hub, file, "c0ffee", folder, meter, patience)
    assert meter.verified[-1] == file.name
    return sum(meter.counted)


def test_a_bad_line_gets_there_as_long_as_something_arrives(folder, patience, waits):
    hub = FakeHub(step=1000, failures=10)
    assert fetch(hub, folder, patience) == len(CONTENT)
    assert hub.offsets == [1000 * number for number in range(11)]
    assert waits == [1.0] * 10
    assert (folder.files / FILE.name).read_bytes() == CONTENT


def test_tries_without_a_byte_are_bounded_and_wait_longer(folder, patience, waits):
    with pytest.raises(DownloadFailed, match=r"the line is bad \(3 tries in a row"):
        fetch(FakeHub(step=0), folder, patience)
    assert waits == [1.0, 2.0]


def test_other_bytes_are_fetched_twice_and_then_told(folder, patience):
    hub = FakeHub(failures=0, content=CONTENT[::-1])
    with pytest.raises(DownloadFailed, match="arrived twice with another digest") as caught:
        fetch(hub, folder, patience)
    assert hub.offsets == [0, 0]
    assert caught.value.wanted == FILE.digest
    assert not folder.part(FILE).exists()


def test_too_many_bytes_are_dropped(folder, patience):
    folder.part(FILE).write_bytes(CONTENT + b"more")
    hub = FakeHub(failures=0)
    fetch(hub, folder, patience)
    assert hub.offsets == [0]


def test_whole_but_unchecked_bytes_need_no_hub(folder, patience):
    folder.part(FILE).write_bytes(CONTENT)
    hub = FakeHub()
    fetch(hub, folder, patience)
    assert hub.offsets == []


def test_an_empty_file(folder, patience):
    empty = RemoteFile("empty.json", 0, "git:e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")
    fetch(FakeHub(failures=0, content=b""), folder, patience, empty)
    assert (folder.files / "empty.json").read_bytes() == b""


@pytest.mark.parametrize(
    ("digest", "good"),
    [
        ("git:" + hashlib.sha1(b"blob 2\0hi").hexdigest(), True),
        ("sha256:" + hashlib.sha256(b"hi").hexdigest().upper(), True),
        ("", True),
        ("git:" + hashlib.sha1(b"hi").hexdigest(), False),
        ("sha256:00", False),
    ],
)
def test_digests_of_both_kinds(tmp_path, digest, good):
    path = tmp_path / "x"
    path.write_bytes(b"hi")
    assert (transfer.check_digest(path, RemoteFile("x", 2, digest)) is not None) is good


def test_room_for_what_is_still_to_come(folder, monkeypatch):
    usage = shutil.disk_usage("/")
    need = len(CONTENT) + transfer.SPARE_BYTES
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=need))
    transfer.check_room(folder, [FILE], "hub")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=need - 1))
    with pytest.raises(DiskFull, match=f"hub: {len(CONTENT)} bytes are still to come") as caught:
        transfer.check_room(folder, [FILE], "hub")
    assert (caught.value.found, caught.value.wanted) == (need - 1, need)
    folder.part(FILE).write_bytes(CONTENT[:1])
    transfer.check_room(folder, [FILE], "hub")


def test_a_part_file_that_starts_anew_takes_its_count_back(tmp_path):
    counted = []
    with (tmp_path / "x").open("ab") as handle:
        part = transfer.PartFile(handle, FILE, counted.append)
        part.write(b"12345")
        part.seek(0)
        part.truncate()
        part.write(b"abc")
        assert part.offset == 3
    assert (tmp_path / "x").read_bytes() == b"abc"
    assert sum(counted) == 3


def test_a_hub_that_never_ends_doesnt_fill_the_volume(folder, patience):
    hub = FakeHub(failures=0, content=CONTENT * 2)
    with pytest.raises(DownloadFailed, match="more arrives than the 10240 bytes"):
        fetch(hub, folder, patience)
    assert not folder.part(FILE).exists() or folder.part(FILE).stat().st_size <= FILE.size


def test_a_checkpoint_needs_room_for_its_conversion_too(folder, monkeypatch):
    usage = shutil.disk_usage("/")
    free = transfer.SPARE_BYTES + 150
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free))
    transfer.check_room(folder, [RemoteFile("m.safetensors", 100, "")], "hub")
    files = [RemoteFile("m.pth", 100, ""), RemoteFile("tokenizer.json", 10, "")]
    with pytest.raises(DiskFull, match="210 bytes are still to come"):
        transfer.check_room(folder, files, "hub")
    done = folder.files / ".rwkv-converted" / "name"
    done.mkdir(parents=True)
    (done / "SHA256SUMS").touch()
    transfer.check_room(folder, files, "hub")

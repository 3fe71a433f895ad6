"""Bytes between a cache's blocks and slots, however the cache lies and whoever has a part of it.

The copies of devices are the same code here, on memory of the host and with an event that counts.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from state_config import LAYERS, small_config

from rwkv_server.states.connector.copies import Copies, HostCopies, StagedCopies
from rwkv_server.states.connector.pages import Rank, Rows, find_rows
from rwkv_server.states.connector.sender import Sender
from rwkv_server.states.connector.work import End, PageCopy, StepWork
from rwkv_server.states.connector.worker import StateWorker
from rwkv_server.states.layout import StateLayout
from rwkv_server.states.slots import Lease, SlotError, SlotFile

HEADS, BLOCKS = 4, 5
CONFIG = small_config(HEADS)
LAYOUT = StateLayout.of(CONFIG, "bfloat16")
LEASE = Lease(1, 9)


def a_cache(kind: str, heads: int = HEADS) -> dict[int, tuple[torch.Tensor, ...]]:
    """Layers' states as vLLM's versions lay them out, full of different bytes."""
    size = CONFIG.hidden_size
    shapes = [((1, size), torch.bfloat16), ((heads, 64, 64), torch.float32)]
    shapes.append(shapes[0])
    cache = {}
    for layer in range(LAYERS):
        if kind == "pages":  # one page for a block, padded at its end
            page = 2 * 2 * size + 4 * heads * 64 * 64
            raw = torch.randint(0, 255, (BLOCKS, page + 128), dtype=torch.uint8)
            ends = [0, 2 * size, page - 2 * size, page]
            parts = [raw[:, a:b] for a, b in itertools.pairwise(ends)]
            views = zip(parts, shapes, strict=True)
            states = [part.view(dtype).view(BLOCKS, *shape) for part, (shape, dtype) in views]
        else:  # each on its own
            states = []
            for shape, dtype in shapes:
                raw = torch.randint(0, 255, (BLOCKS, *shape), dtype=torch.uint8)
                states.append(raw.to(dtype))
        cache[layer] = tuple(states)
    return cache


class Event:
    """Counts what a device would be asked."""

    log: ClassVar[list[str]] = []

    def record(self) -> None:
        Event.log.append("record")

    def synchronize(self) -> None:
        Event.log.append("wait")


def make_copies(kind: str, rows: list[Rows], writes_shared: bool = True) -> Copies:
    Event.log.clear()
    if kind == "host":
        return HostCopies(rows, writes_shared)
    return StagedCopies(rows, writes_shared, Event, pinned=False)


@pytest.fixture
def slots(tmp_path: Path) -> SlotFile:
    file = SlotFile.create(tmp_path / "slots", LAYOUT.nbytes, 3)
    for index in range(3):
        file.renew(index, 9)
    return file


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def expected(cache: dict[int, tuple[torch.Tensor, ...]], block: int) -> bytes:
    return b"".join(bits(state[block]) for states in cache.values() for state in states)


@pytest.mark.parametrize("copies", ["host", "staged"])
@pytest.mark.parametrize("kind", ["pages", "apart"])
def test_a_block_is_saved_and_loaded_into_another(slots: SlotFile, kind: str, copies: str) -> None:
    cache = a_cache(kind)
    rows = find_rows(LAYOUT, cache, Rank(0, 0))
    assert len(rows) == (LAYERS if kind == "pages" else 3 * LAYERS)
    copier = make_copies(copies, rows)
    saved, others = expected(cache, 2), [expected(cache, block) for block in (0, 1, 3)]
    copier.save(slots, LEASE, 2)()
    assert bytes(slots.view(1)) == saved
    assert bytes(slots.view(0)) == bytes(slots.view(2)) == bytes(LAYOUT.nbytes)
    copier.load(slots, LEASE, 4)()
    assert expected(cache, 4) == expected(cache, 2) == saved
    assert [expected(cache, block) for block in (0, 1, 3)] == others


@pytest.mark.parametrize("copies", ["host", "staged"])
def test_ranks_write_their_heads_and_the_first_what_all_have(slots: SlotFile, copies: str) -> None:
    ranks = [a_cache("pages", HEADS // 2) for _ in range(2)]
    for layer in range(LAYERS):
        for shift in (0, 2):
            ranks[1][layer][shift].copy_(ranks[0][layer][shift])
    rows = [find_rows(LAYOUT, cache, Rank(index, index)) for index, cache in enumerate(ranks)]
    copiers = [make_copies(copies, r, writes_shared=i == 0) for i, r in enumerate(rows)]
    for index, copier in reversed(list(enumerate(copiers))):
        if index == 1:
            ranks[1][0][0].zero_()  # what only the first rank writes, whoever comes last
        copier.save(slots, LEASE, 3)()
    whole = {
        layer: (first, torch.cat([wkv, ranks[1][layer][1]], dim=1), last)
        for layer, (first, wkv, last) in ranks[0].items()
    }
    assert bytes(slots.view(1)) == expected(whole, 3)
    copiers[1].load(slots, LEASE, 0)()
    assert bits(ranks[1][0][0][0]) == bits(ranks[0][0][0][3])
    assert bits(ranks[1][2][1][0]) == bits(ranks[1][2][1][3])


@pytest.mark.parametrize("copies", ["host", "staged"])
def test_a_lease_that_is_over_moves_nothing(slots: SlotFile, copies: str) -> None:
    cache = a_cache("pages")
    copier = make_copies(copies, find_rows(LAYOUT, cache, Rank(0, 0)))
    before = expected(cache, 1)
    for move in (copier.load, copier.save):
        with pytest.raises(SlotError):
            move(slots, Lease(1, 8), 1)
    assert expected(cache, 1) == before and bytes(slots.view(1)) == bytes(LAYOUT.nbytes)


def test_a_device_s_bytes_are_those_of_the_save_and_come_when_it_is_done(slots: SlotFile) -> None:
    cache = a_cache("pages")
    copier = make_copies("staged", find_rows(LAYOUT, cache, Rank(0, 0)))
    saved = expected(cache, 2)
    finish = copier.save(slots, LEASE, 2)
    assert Event.log == ["record"] and bytes(slots.view(1)) == bytes(LAYOUT.nbytes)
    cache[0][1][2].zero_()  # the next step
    finish()
    assert Event.log == ["record", "wait"] and bytes(slots.view(1)) == saved


def test_a_lease_that_ends_while_a_device_copies(slots: SlotFile) -> None:
    cache = a_cache("pages")
    copier = make_copies("staged", find_rows(LAYOUT, cache, Rank(0, 0)))
    finish = copier.save(slots, LEASE, 2)
    slots.renew(1, 10)
    with pytest.raises(SlotError):
        finish()
    assert bytes(slots.view(1)) == bytes(LAYOUT.nbytes)


def test_buffers_are_used_again(slots: SlotFile) -> None:
    cache = a_cache("pages")
    copier: Any = make_copies("staged", find_rows(LAYOUT, cache, Rank(0, 0)))
    for _ in range(20):
        copier.save(slots, LEASE, 2)()
        copier.load(slots, LEASE, 3)()
        with pytest.raises(SlotError):
            copier.load(slots, Lease(1, 8), 3)
    assert copier._made == 1


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        server.settimeout(20)
        yield server


def read_lines(listener: socket.socket, count: int) -> list[dict[str, Any]]:
    connection, _ = listener.accept()
    with connection, connection.makefile() as lines:
        return [json.loads(line) for _, line in zip(range(count), lines, strict=False)]


def an_end(name: str, lease: Lease | None) -> End:
    save = None if lease is None else PageCopy(name, 2, lease)
    return End(name, f"v-{name}", "stopped", 3, [1, 2, 3, 4], save, None)


def test_a_worker_tells_each_end_once_and_after_its_copies(
    slots: SlotFile, tmp_path: Path, listener: socket.socket
) -> None:
    cache = a_cache("pages")
    copies = make_copies("staged", find_rows(LAYOUT, cache, Rank(0, 0)))
    sender = Sender(tmp_path / "socket")
    worker = StateWorker(copies, tmp_path / "slots", LAYOUT.nbytes, sender, rank=0)
    gone = Lease(2, 8)
    loads = (PageCopy("a", 0, LEASE), PageCopy("b", 1, gone))
    prompts = (PageCopy("a", 0, Lease(0, 9)), PageCopy("b", 1, LEASE), PageCopy("c", 3, gone))
    assert worker.load(StepWork(loads=loads)) == {1}
    worker.save_prompts(StepWork(prompts=prompts))
    ends = (an_end("a", LEASE), an_end("b", LEASE), an_end("c", gone), an_end("d", None))
    assert worker.end(StepWork(ends=ends)) == {"v-a", "v-b", "v-c"}
    lines = read_lines(listener, 4)
    worker.close()
    told = {line["id"]: (line["saved"], line["prompt_saved"]) for line in lines}
    assert told == {
        "a": (True, True),
        "b": (False, False),
        "c": (False, False),
        "d": (False, False),
    }
    assert "somebody else" in lines[1]["failed"] and lines[0]["failed"] is None
    assert lines[0]["tokens"] == [1, 2, 3, 4] and lines[0]["consumed"] == 3
    assert bytes(slots.view(1)) == expected(cache, 2)


def test_only_the_first_rank_tells_tokens(
    slots: SlotFile, tmp_path: Path, listener: socket.socket
) -> None:
    copies = make_copies("host", find_rows(LAYOUT, a_cache("pages"), Rank(0, 0)))
    worker = StateWorker(copies, tmp_path / "slots", LAYOUT.nbytes, Sender(tmp_path / "socket"), 1)
    worker.end(StepWork(ends=(an_end("a", LEASE),)))
    (line,) = read_lines(listener, 1)
    worker.close()
    assert line["rank"] == 1 and line["tokens"] == [] and line["saved"]


def test_without_a_file_or_a_listener_nothing_is_saved_and_nothing_raises(tmp_path: Path) -> None:
    before = threading.active_count()
    copies = make_copies("host", find_rows(LAYOUT, a_cache("pages"), Rank(0, 0)))
    worker = StateWorker(copies, tmp_path / "none", LAYOUT.nbytes, Sender(tmp_path / "nobody"), 0)
    assert worker.load(StepWork(loads=(PageCopy("a", 3, LEASE),))) == {3}
    assert worker.end(StepWork(ends=(an_end("a", LEASE),))) == {"v-a"}
    worker.close()
    assert threading.active_count() == before


def test_a_sender_finds_the_next_api_process(tmp_path: Path, listener: socket.socket) -> None:
    sender = Sender(tmp_path / "socket")
    sender.put(lambda: sender.send({"id": "a"}))
    first, _ = listener.accept()
    assert first.recv(100) == b'{"id":"a"}\n'
    first.close()
    for name in "bcd":
        sender.put(lambda name=name: sender.send({"id": name}))  # type: ignore[misc]
    second, _ = listener.accept()
    sender.close()
    with second, second.makefile() as lines:
        assert {json.loads(line)["id"] for line in lines} >= {"c", "d"}

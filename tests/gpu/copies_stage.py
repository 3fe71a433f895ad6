"""Snapshots between a device's cache and shared memory: the bytes of their moment, and the time."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from rwkv_server.states.connector.copies import StagedCopies
from rwkv_server.states.connector.pages import Rank, find_rows
from rwkv_server.states.layout import StateLayout, TensorSpec
from rwkv_server.states.slots import Lease, SlotFile

Row = dict[str, Any]

# Layers and heads of models, bfloat16 token shifts.
SHAPES = {"0.1B": (12, 12), "7.2B": (32, 64)}
BLOCKS, SLOTS, ROUNDS = 6, 4, 8


def build_layout(layers: int, heads: int) -> StateLayout:
    """As `StateLayout.of`, from the two numbers that matter."""
    tensors: list[TensorSpec] = []
    size, offset = heads * 64, 0
    for layer in range(layers):
        shift = ((size,), "bfloat16")
        kinds = zip(("a", "b", "c"), (shift, ((heads, 64, 64), "float32"), shift), strict=True)
        for name, (shape, dtype) in kinds:
            tensors.append(TensorSpec(f"layers.{layer}.{name}", shape, dtype, offset))
            offset += tensors[-1].nbytes
    return StateLayout(tuple(tensors), "bfloat16", layers)


def build_cache(layout: StateLayout, device: str) -> dict[int, tuple[torch.Tensor, ...]]:
    """Pages of random bytes, one for each layer and block, as vLLM has them."""
    cache = {}
    for layer in range(layout.layers):
        specs, parts, start = layout.of_layer(layer), [], 0
        page = sum(spec.nbytes for spec in specs)
        raw = torch.randint(0, 255, (BLOCKS, page), dtype=torch.uint8, device=device)
        for spec in specs:
            part = raw[:, start : start + spec.nbytes].view(getattr(torch, spec.dtype))
            parts.append(part.view(BLOCKS, *spec.shape))
            start += spec.nbytes
        cache[layer] = tuple(parts)
    return cache


def check_copies(device: str, make_event: Callable[[], Any], sizes: Iterable[str]) -> Iterator[Row]:
    """Save, overwrite at once, save others, load them into other blocks; then the times."""
    for name in sizes:
        layout = build_layout(*SHAPES[name])
        cache = build_cache(layout, device)
        rows = find_rows(layout, cache, Rank(0, 0))
        copies = StagedCopies(rows, True, make_event, pinned=device != "cpu")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            slots = SlotFile.create(Path(folder) / "slots", layout.nbytes, SLOTS)
            for index in range(SLOTS):
                slots.renew(index, 1)
            yield _check(name, copies, slots, rows)
            yield _measure(name, copies, slots, layout.nbytes)


def _check(name: str, copies: StagedCopies, slots: SlotFile, rows: list[Any]) -> Row:
    right = True
    for turn in range(ROUNDS):
        block, other = 1 + turn % 3, 4 + turn % 2
        was = [row.pages[block].clone() for row in rows]
        finishes = [copies.save(slots, Lease(turn % SLOTS, 1), block)]
        for row in rows:  # the next step, which waits for nobody
            row.pages[block] += 1
        finishes.append(copies.save(slots, Lease((turn + 1) % SLOTS, 1), block))
        for finish in finishes:
            finish()
        places = enumerate((other, 0))
        again = [copies.load(slots, Lease((turn + i) % SLOTS, 1), to) for i, to in places]
        pairs = zip(rows, was, strict=True)
        right &= all(bool((row.pages[other] == kept).all()) for row, kept in pairs)
        right &= all(bool((row.pages[0] == row.pages[block]).all()) for row in rows)
        for finish in again:
            finish()
    return {"check": f"snapshots of {name} through shared memory", "ok": right}


def _measure(name: str, copies: StagedCopies, slots: SlotFile, nbytes: int) -> Row:
    """Milliseconds: what holds the step up, and all of it."""
    times: dict[str, list[float]] = {"save_enqueue": [], "save": [], "load_enqueue": [], "load": []}
    for _ in range(ROUNDS):
        for what, move in (("save", copies.save), ("load", copies.load)):
            begun = time.perf_counter()
            finish = move(slots, Lease(0, 1), 1)
            times[f"{what}_enqueue"].append(time.perf_counter() - begun)
            finish()
            times[what].append(time.perf_counter() - begun)
    best = {what: round(min(seconds) * 1000, 3) for what, seconds in times.items()}
    return {"time": f"a snapshot of {name}, ms", "bytes": nbytes} | best

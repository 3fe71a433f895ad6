"""What the engine's bench measures and what it is measured against. Pure: nothing runs here."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LLAMA_KINDS = {"fp32": "f32", "bf16": "bf16", "int8": "q8_0", "int4": "q4_0"}
"""Our formats of weights, and llama.cpp's nearest."""

RWKV_KINDS = ("fp32", "bf16")
RWKV_AGAINST = "bf16"
"""PyPI `rwkv` is compared in its best dtype with this one of ours."""

THREADS = (1, 2)
BATCHES = (1, 8, 32)
PREFILL = 512
GROWTH_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SLOTS = (32, 256)
"""Sessions that an engine has room for, to see what one more takes; the last one runs the rest."""

PROMPTS = (1, 16, 64, 256, 512, 1024, 2048)
STEP_ROWS = ("floor_b1/bf16/1t", "step_overhead_ms/1t", "top_p_over_greedy/1t", "step_ms/*/1t")
GROWTH_ROWS = ("growth/*", "session_bytes", "ttft_ms/*")
SERVER_ROWS = ("warm_start_s/tiny-recall", "pss_mib")


@dataclass(frozen=True)
class Cell:
    """One measurement that several workers make: a command, and the tokens it is over."""

    name: str
    command: str
    tokens: int


@dataclass(frozen=True)
class Side:
    """Who measures: `ours`, `llama.cpp` or `rwkv`, with a format of weights and threads."""

    who: str
    kind: str
    threads: int


@dataclass(frozen=True)
class Goal:
    """What a row must reach and what it aims at, judged by its ratio or by its value."""

    must: float
    aim: float
    by: str = "ratio"


GOALS: Mapping[tuple[str, str | None], Goal] = {
    ("decode_b1/bf16/1t", "llama.cpp"): Goal(1.0, 1.25),
    ("decode_b8/bf16/1t", "llama.cpp"): Goal(1.4, 1.6),
    ("decode_b32/bf16/1t", "llama.cpp"): Goal(1.6, 1.9),
    ("prefill512/bf16/1t", "llama.cpp"): Goal(1.6, 2.0),
    ("decode_b1/int8/1t", "llama.cpp"): Goal(1.1, 1.3),
    ("decode_b32/int8/1t", "llama.cpp"): Goal(2.0, 3.0),
    ("decode_b1/int4/1t", "llama.cpp"): Goal(0.7, 1.0),
    ("decode_b32/int4/1t", "llama.cpp"): Goal(1.2, 1.5),
    ("decode_b1/bf16/1t", "rwkv"): Goal(2.8, 3.3),
    ("prefill512/bf16/1t", "rwkv"): Goal(4.2, 5.5),
    ("floor_b1/bf16/1t", "memory floor"): Goal(0.60, 0.75),
    ("top_p_over_greedy/1t", "greedy"): Goal(1.25, 1.1),
    ("growth/decode_b256", "batch 32"): Goal(1.0, 1.0),
    ("session_bytes", "the state's bytes"): Goal(1.05, 1.0),
    ("pss_mib", None): Goal(2048, 2048, by="value"),
    ("warm_start_s/tiny-recall", None): Goal(25, 25, by="value"),
}


def cells(steps: Mapping[int, int]) -> list[Cell]:
    """Decoding at each batch size for `steps[batch]` steps, and reading a prompt."""
    decoding = [
        Cell(f"decode_b{batch}", f"decode {batch} {steps[batch]}", batch * steps[batch])
        for batch in BATCHES
    ]
    return [*decoding, Cell(f"prefill{PREFILL}", f"prefill {PREFILL}", PREFILL)]


def wanted(name: str, patterns: Sequence[str]) -> bool:
    """Whether `--rows` asks for this row; no pattern asks for all."""
    return not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def any_wanted(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether `--rows` asks for one of these rows, which are measured together."""
    # Both sides may hold wildcards: compare each as the pattern of the other.
    return any(
        wanted(name, patterns) or any(fnmatch.fnmatchcase(pattern, name) for pattern in patterns)
        for name in names
    )


def sides(cell: str, threads: int, ours: Sequence[str], patterns: Sequence[str]) -> list[Side]:
    """All who take part in a cell: ours in each asked format, each followed by its peers."""
    found = []
    for kind in ours:
        if not wanted(f"{cell}/{kind}/{threads}t", patterns):
            continue
        found += [Side("ours", kind, threads), Side("llama.cpp", LLAMA_KINDS[kind], threads)]
        if kind == RWKV_AGAINST and cell in ("decode_b1", f"prefill{PREFILL}"):
            found += [Side("rwkv", each, threads) for each in RWKV_KINDS]
    return found


def turns(found: Sequence[Side], round_number: int) -> list[Side]:
    """The order of a round: each round another one starts, so that none is always first."""
    start = round_number % len(found) if found else 0
    return [*found[start:], *found[:start]]

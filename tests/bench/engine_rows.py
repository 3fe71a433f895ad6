"""From samples to rows: medians, bests, spreads, and ratios within one run. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import engine_plan
import results
from engine_plan import Side

STATE = "the state's bytes"
Samples = Mapping[tuple[str, Side], Sequence[float]]
"""Tokens per second of each round, by cell and side."""


@dataclass(frozen=True)
class Row(results.Row):
    """A row that also has the best rounds, which noise can only worsen, and its goal."""

    best: float | None = None
    peer_best: float | None = None
    must: float | None = None
    aim: float | None = None
    judged: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The row as the file holds it, with the ratio of the bests beside that of medians."""
        ratio = self.best / self.peer_best if self.best and self.peer_best else None
        return {**super().as_dict(), "best_ratio": ratio}


@dataclass(frozen=True)
class Peer:
    """Who a row is compared with: as goals name it, as the page names it, and its rounds."""

    name: str
    label: str
    values: Sequence[float]


def row(
    name: str, values: Sequence[float], unit: str, better: str, peer: Peer | None = None
) -> Row:
    """One row from the rounds of ours and, in the same run, of a peer."""
    best = max if better == "higher" else min
    goal = engine_plan.GOALS.get((name, peer.name if peer else None))
    middle = statistics.median(values)
    return Row(
        name=name,
        value=middle,
        unit=unit,
        better=better,
        runs=len(values),
        spread=(max(values) - min(values)) / middle if middle else 0.0,
        peer=peer.label if peer else None,
        peer_value=statistics.median(peer.values) if peer else None,
        best=best(values),
        peer_best=best(peer.values) if peer else None,
        must=goal.must if goal else None,
        aim=goal.aim if goal else None,
        judged=goal.by if goal else None,
    )


def speed_rows(samples: Samples) -> list[Row]:
    """A row for each cell of ours and each of its peers; `rwkv` in its best dtype only."""
    rows = []
    kinds = list(engine_plan.LLAMA_KINDS)
    ours = [key for key in samples if key[1].who == "ours"]
    order = list(dict.fromkeys(cell for cell, _ in ours))
    for cell, side in sorted(ours, key=lambda key: (order.index(key[0]), kinds.index(key[1].kind))):
        values = samples[cell, side]
        name = f"{cell}/{side.kind}/{side.threads}t"
        peers = [find(samples, cell, side) for find in (llama, official)]
        for peer in filter(None, peers) if any(peers) else [None]:
            rows.append(row(name, values, "tokens/s", "higher", peer))
    return rows


def llama(samples: Samples, cell: str, side: Side) -> Peer | None:
    """llama.cpp with the nearest format and the same threads."""
    kind = engine_plan.LLAMA_KINDS[side.kind]
    values = samples.get((cell, Side("llama.cpp", kind, side.threads)))
    return Peer("llama.cpp", f"llama.cpp {kind}", values) if values else None


def official(samples: Samples, cell: str, side: Side) -> Peer | None:
    """PyPI `rwkv` in the dtype that is faster here."""
    if side.kind != engine_plan.RWKV_AGAINST:
        return None
    found = {
        kind: values
        for kind in engine_plan.RWKV_KINDS
        if (values := samples.get((cell, Side("rwkv", kind, side.threads))))
    }
    if not found:
        return None
    kind = max(found, key=lambda kind: statistics.median(found[kind]))
    return Peer("rwkv", f"rwkv {kind}", found[kind])


def step_rows(parts: Mapping[str, Sequence[float]]) -> list[Row]:
    """Rows about a step at batch 1, from milliseconds of each round."""
    speed = [1e3 / value for value in parts["greedy"]]
    floor = Peer("memory floor", "reading the weights once", [1e3 / v for v in parts["floor"]])
    greedy = Peer("greedy", "a greedy step", parts["greedy"])
    return [
        row("floor_b1/bf16/1t", speed, "tokens/s", "higher", floor),
        row("top_p_over_greedy/1t", parts["sampled"], "ms", "lower", greedy),
        row("step_overhead_ms/1t", parts["rest"], "ms", "lower"),
        row("step_ms/layers/1t", parts["layers"], "ms", "lower"),
        row("step_ms/head/1t", parts["head"], "ms", "lower"),
    ]


def growth_rows(
    speeds: Mapping[int, Sequence[float]],
    held: Mapping[int, int],
    state_bytes: int,
    first_token: Mapping[int, Sequence[float]],
) -> list[Row]:
    """How cost grows: speed by batch, memory by sessions, ms to the first token by prompt."""
    rows = []
    for batch, values in speeds.items():
        peer = Peer("batch 32", "our own batch 32", speeds[32]) if batch == 256 else None
        rows.append(row(f"growth/decode_b{batch}", values, "tokens/s", "higher", peer))
    slope = [session_slope(held)]
    rows.append(row("session_bytes", slope, "bytes", "lower", Peer(STATE, STATE, [state_bytes])))
    for length, values in first_token.items():
        rows.append(row(f"ttft_ms/{length}", values, "ms", "lower"))
    return rows


def session_slope(held: Mapping[int, int]) -> float:
    """Bytes of room for one more session, from the memory of engines with room for so many."""
    return statistics.linear_regression(list(held), list(held.values())).slope


def line(row: Row) -> str:
    """A row as the terminal shows it."""
    text = f"{row.name:28} {row.value:10.2f} {row.unit:9} best {row.best:10.2f} ±{row.spread:4.0%}"
    made = row.as_dict()
    if made["ratio"] is None:
        return text
    goal = f"  must {row.must} aim {row.aim}" if row.must is not None else ""
    return f"{text}  {made['ratio']:.2f} (best {made['best_ratio']:.2f}) × {row.peer}{goal}"

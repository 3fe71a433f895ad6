"""What states cost and save, on served engines over HTTP: saving, going on, automatic reuse.

Each part starts the engines it needs. `--only` measures some parts again and keeps the other rows.
Run by the engine environment's Python, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATHS = ("server", "tests/support", "tests/cluster", "tests/bench")
sys.path[:0] = [str(ROOT / part) for part in PATHS]

import random_checkpoint  # noqa: E402
import results  # noqa: E402
import state_load  # noqa: E402
import state_prefix  # noqa: E402
from results import Row  # noqa: E402
from server_process import ServerProcess  # noqa: E402
from server_worker import pss_bytes  # noqa: E402
from state_load import Client, spread, tokens  # noqa: E402

TINY = ROOT / "image" / "models" / "tiny-recall"
START_TIMEOUT_S = 300
MEBIBYTE = 1 << 20
# A snapshot of the 0.1B shape: 12 layers of (12 heads x 64 x 64 fp32 and 2 x 768 bf16).
SNAPSHOT = 12 * (12 * 64 * 64 * 4 + 2 * 768 * 2)
ROUNDS = 60
PAIRS = 8
SAVE = {"state": {"save": True}}


def main() -> None:
    """Measure, write build/bench/state.json, print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, of " + ", ".join(PARTS))
    parts = parser.parse_args().only.split(",")
    with tempfile.TemporaryDirectory(prefix="bench-state-") as folder:
        model = make_model(Path(folder) / "small")
        for part in parts:
            made = PARTS[part](Path(folder) / part, model)
            keep(made)
            for row in made:
                against = "" if row.peer_value is None else f" ({row.peer}: {row.peer_value:.4g})"
                print(f"{row.name}: {row.value:.4g} {row.unit}{against}", flush=True)


def keep(made: list[Row]) -> None:
    """Put the rows in the file, in the place of older ones with their names."""
    path = results.DIRECTORY / "state.json"
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    rows = {row["name"]: row for row in old} | {row.name: row.as_dict() for row in made}
    results.write("state", made, ["make bench-state"])
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "rows": list(rows.values())}, indent=1) + "\n")


def make_model(folder: Path) -> Path:
    """A World model of the 0.1B shape with random weights."""
    random_checkpoint.write_checkpoint(folder, random_checkpoint.SMALL, seed=1)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    return folder


@contextlib.contextmanager
def serving(folder: Path, model: Path, **fields: Any) -> Iterator[ServerProcess]:
    """A ready server; reuse is off unless asked for."""
    options = {"model__dtype": "BFloat16", "state__automaticReuse": "Off", **fields}
    server = ServerProcess(folder, model, **options)
    try:
        server.wait_until_ready(START_TIMEOUT_S)
        client = Client(server)
        for number in range(3):
            client.complete([3 + number] * 64)  # tokens that each model has
        yield server
    finally:
        server.stop()


def latencies(folder: Path, model: Path) -> list[Row]:
    """What a saved and a resumed turn take beyond a plain one; memory holds eight snapshots."""
    seeds = iter(range(10**6))

    def prompt(count: int = 64) -> list[int]:
        made: list[int] = tokens(count, next(seeds))
        return made

    with serving(folder / "synced", model, state__hotBytes=9 * SNAPSHOT) as server:
        client = Client(server)
        cold = [client.complete(prompt(), **SAVE)[1]["state"]["ref"] for _ in range(30)]
        spent: dict[str, list[float]] = {}
        for at in range(ROUNDS):
            hot = client.complete(prompt(), **SAVE)[1]["state"]["ref"]
            asked: dict[str, tuple[list[int], dict[str, Any]]] = {
                "plain": (prompt(66), {}),
                "save": (prompt(66), SAVE),
                "hot": (prompt(), {"state": {"ref": hot}}),
                "durable": (prompt(), {"state": {"ref": cold[at % len(cold)]}}),
            }
            for name, (new, fields) in asked.items():
                ms, answer = client.complete(new, **fields)
                if answer.get("state", {}).get("source", name) not in (name, "none"):
                    raise RuntimeError(f"{name} came from {answer['state']['source']}")
                spent.setdefault(name, []).append(ms)
        replay = [client.complete(prompt(2000))[0] for _ in range(5)]
    plain = statistics.median(spent["plain"])
    rows = []
    for name, row in (
        ("save", "save_durable/p50"),
        ("hot", "resume_hot/p50"),
        ("durable", "resume_durable/p50"),
    ):
        added = [ms - base for ms, base in zip(spent[name], spent["plain"], strict=True)]
        rows.append(Row(row, statistics.median(added), "ms", "lower", ROUNDS, spread(spent[name])))
    for name in ("hot", "durable"):
        whole = statistics.median(spent[name])
        rows.append(
            Row(
                f"turn_after_2000_tokens/{name}",
                whole,
                "ms",
                "lower",
                ROUNDS,
                spread(spent[name]),
                "full replay",
                statistics.median(replay),
            )
        )
    rows.append(Row("turn_without_state/p50", plain, "ms", "lower", ROUNDS, spread(spent["plain"])))
    return [*rows, without_fsync(folder / "memory", model)]


def without_fsync(folder: Path, model: Path) -> Row:
    """What a saved turn takes beyond a plain one where syncing costs nothing: a store in memory."""
    added, saved = [], []
    with in_memory() as path, serving(folder, model, state__path=path) as server:
        client = Client(server)
        for at in range(ROUNDS):
            plain = client.complete(tokens(66, 2 * at + 10**6))[0]
            saved.append(client.complete(tokens(66, 2 * at + 1 + 10**6), **SAVE)[0])
            added.append(saved[-1] - plain)
    name = "save_without_fsync/p50"
    return Row(name, statistics.median(added), "ms", "lower", ROUNDS, spread(saved))


@contextlib.contextmanager
def in_memory() -> Iterator[str]:
    """A folder of a file system in memory."""
    with tempfile.TemporaryDirectory(prefix="bench-state-", dir="/dev/shm") as path:
        yield path


def throughputs(folder: Path, model: Path) -> list[Row]:
    """64 requests at once, all of them saving, beside the same without; and what the disk takes."""
    name = "throughput_64/with_saves"
    rows = [throughput(folder / "synced", model, name)]
    disk = [state_load.sync_files(folder, 64, SNAPSHOT) for _ in range(PAIRS)]
    took = statistics.median(disk)
    rows.append(Row("disk_alone/64_snapshots", took, "ms", "lower", PAIRS, spread(disk)))
    with in_memory() as path:
        rows.append(throughput(folder / "memory", model, f"{name}_without_fsync", state__path=path))
    return rows


def throughput(folder: Path, model: Path, name: str, **fields: Any) -> Row:
    """Pairs of runs without and with saves, on one server."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    fields |= {"engine__maxNumSeqs": 64, "state__hotBytes": 200 * SNAPSHOT}
    with serving(folder, model, **fields) as server:
        state_load.throughput(server, SAVE, 0)
        for at in range(PAIRS):
            # Each comes first as often as second: a machine gets faster or slower meanwhile.
            for saving in (False, True) if at % 2 else (True, False):
                asked = SAVE if saving else {}
                rates[saving].append(state_load.throughput(server, asked, 2 * at + saving + 1))
    ours, peer = (statistics.median(rates[saving]) for saving in (True, False))
    return Row(name, ours, "tok/s", "higher", PAIRS, spread(rates[True]), "without", peer)


def conversations(folder: Path, model: Path) -> list[Row]:
    """100 turns of a stock client that resends everything, of which the prompt limit holds half."""
    firsts: list[list[float]] = []
    hits = cached = whole = 0
    fields = {"state__automaticReuse": "Memory", "model__maxModelLen": 4096}
    with serving(folder / "reuse", model, **fields, state__hotBytes=64 * SNAPSHOT) as server:
        client = Client(server)
        for seed in range(3):
            turns = list(state_load.talk(client.chat, 100, seed))
            firsts.append([first for first, _ in turns])
            reused = [
                (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
                for _, usage in turns
            ]
            hits += sum(count > 0 for count in reused[1:])
            cached += sum(reused)
            whole += sum(usage["prompt_tokens"] for _, usage in turns)
            last = turns[-1][1]["prompt_tokens"]
    early, late = ([one[at] for one in firsts for at in places] for places in ((1, 2), (98, 99)))
    again = replayed(folder / "replay", model, last)
    ratio = statistics.median(late) / statistics.median(early)
    peer = statistics.median(again[1]) / statistics.median(again[0])
    against = "full replay"
    return [
        Row("ttft_turn100_over_turn2", ratio, "", "lower", 3, spread(late), against, peer),
        Row(
            "ttft_turn100",
            statistics.median(late),
            "ms",
            "lower",
            3,
            spread(late),
            against,
            statistics.median(again[1]),
        ),
        Row("reuse_hits_after_first_turn", hits / (3 * 99), "", "higher", 3, 0.0),
        Row("reuse_tokens_not_read", cached / whole, "", "higher", 3, 0.0),
    ]


def replayed(folder: Path, model: Path, last: int) -> tuple[list[float], list[float]]:
    """ms to the first words of prompts as long as those of turn 2 and of turn 100."""
    early, late = [], []
    with serving(folder, model, model__maxModelLen=16384) as server:
        client = Client(server)
        for seed in range(3):
            early.append(client.complete(tokens(2 * last // 100, 7000 + seed))[0])
            late.append(client.complete(tokens(last, 8000 + seed))[0])
    return early, late


def growth(folder: Path, model: Path) -> list[Row]:
    """Memory after 10,000 saves beside that after 1,000, of the bundled model."""
    with serving(folder, TINY, model__dtype="Float32", state__hotBytes=8 * MEBIBYTE) as server:
        clients = [Client(server) for _ in range(8)]

        def save(number: int) -> None:
            body = {"state": {"save": True, "ttl_s": 60}}
            clients[number % 8].complete([3 + number % 200, 4, 5], **body)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(save, range(1000)))
            before = sum(map(pss_bytes, server.family()))
            start = time.perf_counter()
            list(pool.map(save, range(1000, 10_000)))
            rate = 9000 / (time.perf_counter() - start)
        time.sleep(1)
        after = sum(map(pss_bytes, server.family()))
    grown = (after - before) / MEBIBYTE
    return [
        Row("rss_growth_10k_saves", grown, "MiB", "lower", 1, 0.0, "at 1,000", before / MEBIBYTE),
        Row("saves_per_second/tiny", rate, "1/s", "higher", 1, 0.0),
    ]


PARTS: dict[str, Callable[[Path, Path], list[Row]]] = {
    "latencies": latencies,
    "throughputs": throughputs,
    "conversations": conversations,
    "prefix": state_prefix.measure,
    "growth": growth,
}

if __name__ == "__main__":
    main()

"""How the engine's cost grows with batch, sessions and prompt; what starting the server takes."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import engine_peers
import engine_plan
import engine_rows
import engine_workers
from engine_peers import Peers
from engine_plan import Side
from engine_workers import Worker

from rwkv_server.model import state_layout
from rwkv_server.model.config import parse_config

HERE = Path(__file__).resolve().parent
TINY_RECALL = engine_peers.ROOT / "image" / "models" / "tiny-recall"
OURS = Side("ours", "bf16", 1)
STEPS = 8
ROUNDS = 3


def growth(peers: Peers) -> list[engine_rows.Row]:
    """bf16, one thread: an engine with few slots for its memory, one with many for all else."""
    speeds: dict[int, list[float]] = defaultdict(list)
    first_token: dict[int, list[float]] = defaultdict(list)
    held: dict[int, int] = {}
    for slots in engine_plan.SLOTS:
        engine_workers.say(f"starting an engine with {slots} slots")
        with engine_workers.running([OURS], peers, slots) as workers:
            worker = workers[OURS]
            worker.ask("decode 1 1")
            held[slots] = worker.ask("memory")["bytes"]
            for number in range(ROUNDS if slots == max(engine_plan.SLOTS) else 0):
                growth_round(worker, speeds, first_token)
                engine_workers.say(f"growth: round {number + 1} of {ROUNDS}")
    config = parse_config(json.loads((peers.model / "config.json").read_text()))
    state = state_layout.session_bytes(config, "bfloat16")
    return engine_rows.growth_rows(speeds, held, state, first_token)


def growth_round(
    worker: Worker, speeds: dict[int, list[float]], first_token: dict[int, list[float]]
) -> None:
    """Add one measurement of each batch, in tokens per second, and of each prompt, in ms."""
    for batch in engine_plan.GROWTH_BATCHES:
        seconds = worker.ask(f"decode {batch} {STEPS}")["seconds"]
        speeds[batch].append(batch * STEPS / seconds)
    for length in engine_plan.PROMPTS:
        first_token[length].append(worker.ask(f"prefill {length}")["seconds"] * 1e3)


def server(peers: Peers) -> list[engine_rows.Row]:
    """The server as a pod runs it: a warm start with the bundled model, memory with the bench's."""
    engine_workers.say("starting the server with tiny-recall, twice, then with the 0.1B shape")
    probe(TINY_RECALL, "Auto")  # whatever was not in the page cache is now
    start = probe(TINY_RECALL, "Auto")["seconds"]
    memory = probe(peers.model, "BFloat16")["pss"] / 2**20
    return [
        engine_rows.row("warm_start_s/tiny-recall", [start], "s", "lower"),
        engine_rows.row("pss_mib", [memory], "MiB", "lower"),
    ]


def probe(model: Path, dtype: str) -> dict[str, Any]:
    """Seconds until the server was ready, and bytes that all its processes hold."""
    script = [engine_peers.ENGINE_PYTHON, HERE / "server_worker.py", model, dtype]
    answer: dict[str, Any] = json.loads(subprocess.check_output([str(word) for word in script]))
    return answer

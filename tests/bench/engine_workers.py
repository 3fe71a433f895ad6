"""Workers of the engine's bench: processes that measure when they are told to, one at a time."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import engine_peers
from engine_plan import Side

from rwkv_server.model import packed_manifest, weights
from rwkv_server.model.config import parse_config

HERE = Path(__file__).resolve().parent
LOGS = HERE.parents[1] / "build" / "bench" / "log"
ENGINE_OPTIONS: Mapping[str, dict[str, Any]] = {
    "fp32": {"dtype": "float32"},
    "bf16": {"dtype": "bfloat16"},
    "int8": {"dtype": "bfloat16", "additional_config": {packed_manifest.ON_LOAD_KEY: "Int8"}},
    "int4": {"dtype": "bfloat16", "additional_config": {packed_manifest.ON_LOAD_KEY: "Int4"}},
}
"""What makes vLLM keep the weights as we name them."""


def say(text: str) -> None:
    """Tell how far it is."""
    print(f"[{time.strftime('%H:%M:%S')}] bench-engine: {text}", flush=True)


class Worker:
    """One process with commands on its stdin and answers on its stdout."""

    def __init__(self, name: str, command: Sequence[object], env: Mapping[str, str]) -> None:
        """Start it; `wait` says when it has loaded."""
        LOGS.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log = LOGS / f"{name.replace('/', '-')}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                env={**os.environ, **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def wait(self, cores: set[int]) -> None:
        """Wait until it is ready, then keep it on these cores."""
        self._answer()
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), cores)

    def ask(self, command: str) -> dict[str, Any]:
        """Have it do one thing."""
        assert self.process.stdin is not None
        print(command, file=self.process.stdin, flush=True)
        return self._answer()

    def stop(self) -> None:
        """End it and what it holds."""
        self.process.kill()
        self.process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # Libraries print while they are imported.
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        end = self.log.read_text(errors="replace")[-3000:]
        raise RuntimeError(f"bench-engine: {self.name} ended\n{end}")


def start(side: Side, peers: engine_peers.Peers, slots: int = 32) -> Worker:
    """Start the worker of one side."""
    name = f"{side.who}/{side.kind}/{side.threads}t"
    env = {"OMP_NUM_THREADS": str(side.threads)}
    if side.who == "llama.cpp":
        return Worker(name, [peers.llama, peers.gguf[side.kind], str(side.threads)], env)
    if side.who == "memory":
        return Worker(name, [peers.memory], env)
    if side.who == "rwkv":
        script = [engine_peers.ENGINE_PYTHON, HERE / "rwkv_worker.py", peers.official, side.kind]
        return Worker(name, script, env | {"RWKV_V7_ON": "1", "RWKV_JIT_ON": "1"})
    env |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "TORCH_COMPILE_DISABLE": "1",
    }
    options = json.dumps({**ENGINE_OPTIONS[side.kind], "max_num_seqs": slots})
    script = [engine_peers.ENGINE_PYTHON, HERE / "engine_worker.py", peers.model, options]
    return Worker(name, script, env)


def weight_bytes(peers: engine_peers.Peers) -> int:
    """Bytes of bf16 weights that one token needs: all but the embeddings' other rows."""
    config = parse_config(json.loads((peers.model / "config.json").read_text()))
    shapes = weights.expected_tensors(config)
    return sum(2 * math.prod(shape) for name, shape in shapes.items() if "embeddings" not in name)


@contextlib.contextmanager
def running(
    sides: Sequence[Side], peers: engine_peers.Peers, slots: int = 32
) -> Iterator[dict[Side, Worker]]:
    """All of these workers, loaded; those with one thread share one core."""
    cores = sorted(os.sched_getaffinity(0))
    workers: dict[Side, Worker] = {}
    try:
        for side in sides:
            workers[side] = start(side, peers, slots)
        for side, worker in workers.items():
            worker.wait(set(cores[-side.threads :]))
        yield workers
    finally:
        for worker in workers.values():
            worker.stop()

"""Starts the server as a pod would and says how long that took and what memory it holds.

Arguments: a model's folder, a dtype of engine.yaml. Run by the engine environment's Python.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("server", "tests/support", "tests/cluster")]

from server_process import ServerProcess  # noqa: E402

START_TIMEOUT_S = 300
ANSWERS = 3


def main() -> None:
    """Start, let it answer, look, end."""
    model, dtype = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        server = ServerProcess(Path(folder), Path(model), model__dtype=dtype)
        try:
            server.wait_until_ready(START_TIMEOUT_S)
            seconds = time.monotonic() - started
            for _ in range(ANSWERS):
                answer(server)
            memory = sum(pss_bytes(pid) for pid in server.family())
        finally:
            server.stop()
    print(json.dumps({"seconds": seconds, "pss": memory}))


def answer(server: ServerProcess) -> None:
    """Have a short text completed, so that everything a request needs is in memory."""
    body = {"model": "chat", "prompt": "Hello", "max_tokens": 16, "ignore_eos": True}
    with server.client() as client:
        client.post("/v1/completions", json=body).raise_for_status()


def pss_bytes(pid: int) -> int:
    """A process's share of memory: what it shares with others counts in parts."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    (kib,) = (line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(kib) * 1024


if __name__ == "__main__":
    main()

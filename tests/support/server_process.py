"""Runs `rwkv-server serve` as a pod would, for tests of its whole life."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import engine_config
import httpx

from rwkv_cluster.ports import free_ports

SERVER = Path(__file__).parents[2] / "server"
KEY = "a-key-that-no-log-may-hold"


class ServerProcess:
    """One running parent, its files in `folder`, its ports its own."""

    def __init__(
        self,
        folder: Path,
        model: Path,
        path: str = "",
        variables: Mapping[str, str] = MappingProxyType({}),
        **fields: Any,
    ) -> None:
        """Write the config and start; `path` is searched for modules before all else."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state").mkdir(exist_ok=True)
        (folder / "key").write_text(KEY + "\n")
        self.termination = folder / "termination-log"
        self.termination.touch()
        self.log = folder / "log"
        self.port, self.ops_port = free_ports(2)
        settings = {
            "model__path": str(model),
            "state__path": str(folder / "state"),
            "http__port": self.port,
            "http__internalKeyFile": str(folder / "key"),
            "ops__port": self.ops_port,
            **fields,
        }
        self.config = engine_config.write(folder / "engine.yaml", **settings)
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
        self._env["PYTHONPATH"] = os.pathsep.join(filter(None, [path, str(SERVER)]))
        # As in the image: nothing can be compiled, and nothing compiled before is found.
        self._env |= {"CXX": "no-compiler", "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
        self._env |= variables
        with self.log.open("wb") as log:
            arguments = ["--termination-log", str(self.termination)]
            self.process = subprocess.Popen(
                self._command("serve", *arguments), env=self._env, stdout=log, stderr=log
            )

    def _command(self, *words: str) -> list[str]:
        return [
            sys.executable,
            "-m",
            "rwkv_server",
            words[0],
            f"--config={self.config}",
            *words[1:],
        ]

    def command(self, word: str) -> subprocess.Popen[str]:
        """Start another command of the same pod, such as `drain`."""
        return subprocess.Popen(
            self._command(word), env=self._env, stdout=subprocess.PIPE, text=True
        )

    def ops(self, path: str) -> httpx.Response:
        """Ask the ops port."""
        return httpx.get(f"http://127.0.0.1:{self.ops_port}{path}", timeout=10, trust_env=False)

    @property
    def url(self) -> str:
        """The OpenAI port."""
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> httpx.Client:
        """A client of the OpenAI port that has the key."""
        headers = {"authorization": f"Bearer {KEY}"}
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=60, trust_env=False, **options
        )

    def wait_until_ready(self, timeout_s: float) -> None:
        """Wait for /readyz, or fail with the end of the log."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.is_running():
            try:
                if self.ops("/readyz").status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"not ready: exit code {self.process.poll()}\n{self.tail()}")

    def is_running(self) -> bool:
        """Whether it may become ready."""
        return self.process.poll() is None

    def tail(self) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-6000:]

    def last_words(self) -> dict[str, Any]:
        """The termination message."""
        words: dict[str, Any] = json.loads(self.termination.read_text())
        return words

    def family(self) -> set[int]:
        """The parent's and all its descendants' process ids."""
        return family(self.process.pid)

    def stop(self) -> None:
        """Kill it with everything it started; tests that want a good end ask for it before."""
        for pid in self.family():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        # A pod's shared memory goes with it.
        for path in Path("/dev/shm").glob(f"rwkv-states-{self.port}*"):
            path.unlink(missing_ok=True)


def family(pid: int) -> set[int]:
    """The ids of a process and all its descendants."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(status.parent.name)] = int(fields[1])
    found = {pid}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def alive(pids: set[int]) -> set[int]:
    """Those of `pids` that still exist."""
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}

"""Engines by fork from a process that has imported vLLM: importing it twice is most of a start.

For tests that start many pods of which the start itself isn't what they test. A fork is a served
engine as any other: it reads its command line, loads the model and listens by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from server_process import SERVER, ServerProcess, family

import rwkv_cluster

SUPPORT = Path(__file__).parent
CLUSTER = Path(rwkv_cluster.__file__).parents[1]
MAIN = "vllm.entrypoints.openai.api_server"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# What engines would import one after the other; names that this vLLM doesn't have are left out.
HEAVY = (
    MAIN,
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.executor.uniproc_executor",
    "rwkv_server.plugin",
    "rwkv_server.states.connector.connector",
    "rwkv_server.states.web.layer",
    "rwkv_server.web.gate",
)


class EngineNursery:
    """The process that forks, and where to ask it."""

    def __init__(self, folder: Path) -> None:
        """Start it; pods wait for its imports when they ask."""
        self._path = folder / "nursery"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._path))
        listener.listen()
        env = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
        env |= {
            "PYTHONPATH": os.pathsep.join(map(str, (SERVER, SUPPORT, CLUSTER))),
            # As the parent gives them to its child; read when torch and vLLM are imported.
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "TORCH_COMPILE_DISABLE": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
        }
        self._log = folder / "nursery-log"
        with listener, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno())],
                env=env,
                pass_fds=[listener.fileno()],
                stdout=log,
                stderr=log,
            )

    def settle(self) -> None:
        """Return once all that was asked for before is forked; nothing is, where it has ended."""
        with contextlib.suppress(ConnectionError), socket.socket(socket.AF_UNIX) as asker:
            asker.connect(self.address)
            asker.shutdown(socket.SHUT_WR)
            asker.recv(1)

    def pod(self, folder: Path, model: Path, **fields: Any) -> ForkedPod:
        """Start a pod whose engine is a fork."""
        return ForkedPod(self, folder, model, **fields)

    @property
    def address(self) -> str:
        """What pods' engines ask."""
        return str(self._path)

    def ended(self) -> str:
        """How it ended and the end of its log; "" while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        return f"\nthe nursery: exit code {code}\n{self._log.read_text(errors='replace')[-3000:]}"

    def engine(self, pid: int) -> set[int]:
        """The processes of an engine, also of one whose first has ended.

        Only its own forks: by now the number may be of somebody else's process.
        """
        forks = family(self._process.pid) - {self._process.pid}
        return forks & (family(pid) | {fork for fork in forks if _group(fork) == pid})

    def close(self) -> None:
        """End it with all its engines."""
        for pid in family(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


def _group(pid: int) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


class ForkedPod(ServerProcess):
    """A pod whose parent is a process of its own and whose engine is a fork."""

    def __init__(self, nursery: EngineNursery, folder: Path, model: Path, **fields: Any) -> None:
        self._nursery, self._engine = nursery, folder / "engine-pid"
        self._engine.unlink(missing_ok=True)
        variables = {"ENGINE_NURSERY": nursery.address, "ENGINE_PID": str(self._engine)}
        super().__init__(folder, model, str(SUPPORT / "forked_child"), variables, **fields)

    def family(self) -> set[int]:
        """The parent's and the engine's processes."""
        return super().family() | self._engines()

    def is_running(self) -> bool:
        """Whether it may become ready: not without a nursery."""
        return super().is_running() and not self._nursery.ended()

    def tail(self) -> str:
        """The end of the log, and of the nursery's if that has ended."""
        return super().tail() + self._nursery.ended()

    def stop(self) -> None:
        """Kill all of it, also an engine that was asked for and isn't there yet."""
        super().stop()
        self._nursery.settle()
        super().stop()
        while self._engines():
            time.sleep(0.01)
            super().stop()

    def _engines(self) -> set[int]:
        engine = self._engine.read_text() if self._engine.exists() else ""
        return self._nursery.engine(int(engine)) if engine else set()


def serve(listener: socket.socket) -> None:
    """Import, then fork whenever somebody asks; end with whoever started this.

    What an engine leaves behind becomes a child of this process, which is how it's found.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for name in HEAVY:
        import_if_there(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        asker, _ = listener.accept()
        wish, outputs = receive(asker)
        if wish is not None:
            pid = os.fork()
            if pid == 0:
                listener.close()
                become_engine(wish, outputs, asker)
            Path(wish["env"]["ENGINE_PID"]).write_text(str(pid))
        for output in outputs:
            os.close(output)
        asker.close()


def import_if_there(name: str) -> None:
    """Import a module; that it lacks something of its own is an error."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise


def receive(asker: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """What is asked for, and where it writes to; None where the asker is gone or asks nothing."""
    size, outputs, _, _ = socket.recv_fds(asker, 4, 2)
    with asker.makefile("rb") as stream:
        told = stream.read(int.from_bytes(size, "big"))
    whole = len(size) == 4 and len(told) == int.from_bytes(size, "big")
    return (json.loads(told) if whole else None), outputs


def become_engine(wish: dict[str, Any], outputs: list[int], asker: socket.socket) -> None:
    """Be what was asked for; the asker hears of the end, because its socket stays open till then.

    Args:
        wish: the command line and the environment.
        outputs: of standard output and standard error.
        asker: kept open by being held.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, output in enumerate(outputs, start=1):
        os.dup2(output, number)
    os.environ.clear()
    os.environ.update(wish["env"])
    sys.argv = wish["argv"]
    fork_engine_cores()
    runpy.run_module(MAIN, run_name="__main__", alter_sys=True)


def fork_engine_cores() -> None:
    """Make vLLM's next processes forks, too; on CPUs it starts new Pythons."""
    chosen = multiprocessing.get_context

    def get_context(method: str | None = None) -> Any:
        return chosen("fork" if method == "spawn" else method)

    multiprocessing.get_context = get_context  # type: ignore[assignment]


@contextlib.contextmanager
def nursery(folder: Path) -> Iterator[EngineNursery]:
    """One for as long as it is needed."""
    made = EngineNursery(folder)
    try:
        yield made
    finally:
        made.close()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))

"""The vLLM child: one process group, started, read, and ended without leftovers.

vLLM starts processes of its own. They share the child's process group and, because this process
asks to be their reaper, become its children when theirs ends; so after `stop` none is left, not
even as a zombie.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rwkv_server.parent.background import in_thread
from rwkv_server.parent.child_log import split_lines

_PR_SET_CHILD_SUBREAPER = 36
_LINGER_S = 3.0
# How long the last words are waited for: processes that outlive the leader may hold its pipe.
_LAST_WORDS_S = 2.0
_POLL_S = 0.05


class Child:
    """A running process group."""

    def __init__(self, process: asyncio.subprocess.Process, reader: threading.Thread) -> None:
        """Wrap a process that leads its own group, and the thread that reads what it writes."""
        self._process = process
        self._reader = reader

    @classmethod
    async def start(
        cls, args: Sequence[str], env: Mapping[str, str], on_line: Callable[[str], str]
    ) -> Child:
        """Start `args`; each line it writes goes through `on_line` to our standard output."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *args,
                env=dict(env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        reader = threading.Thread(target=_pass_on, args=(read_end, on_line), daemon=True)
        reader.start()
        return cls(process, reader)

    @property
    def pid(self) -> int:
        """The leader's process id, which is also its group's."""
        return self._process.pid

    async def wait(self) -> int:
        """The exit status, once the leader has ended and was heard out; negative for a signal."""
        code = await self._process.wait()
        await in_thread(lambda: self._reader.join(_LAST_WORDS_S))
        return code

    async def stop(self, grace_s: float) -> None:
        """End the whole group: SIGTERM to the leader, SIGKILL to what is left after `grace_s`."""
        if self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), grace_s)
            except asyncio.TimeoutError:
                self._kill()
                await self._process.wait()
        deadline = time.monotonic() + _LINGER_S
        while self._reap() and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
        self._kill()
        while self._reap():
            await asyncio.sleep(_POLL_S)

    def _kill(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _reap(self) -> bool:
        """Collect ended processes of the group; True while some are alive."""
        try:
            while os.waitpid(-self.pid, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return False
        return True


def _pass_on(read_end: int, on_line: Callable[[str], str]) -> None:
    with os.fdopen(read_end, "rb", buffering=0) as stream:
        for line in split_lines(_chunks(stream.fileno())):
            shown = on_line(line)
            # A closed standard output must not stop the reading: the child would block.
            with contextlib.suppress(OSError):
                print(shown, flush=True)


def _chunks(handle: int) -> Iterator[bytes]:
    while chunk := os.read(handle, 1 << 16):
        yield chunk

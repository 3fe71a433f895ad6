from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from rwkv_server.parent.child import Child

# Starts a process of its own, which ignores SIGTERM, and says both ids.
FAMILY = """
import signal, subprocess, sys, time
code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code])
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("child", child.pid, flush=True)
time.sleep(60)
"""


async def start(script, *args):
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def hear(line):
        loop.call_soon_threadsafe(lines.put_nowait, line)
        return line

    child = await Child.start([sys.executable, "-c", script, *args], os.environ, hear)
    return child, lines


def exists(pid):
    return Path(f"/proc/{pid}").exists()


async def test_output_passes_and_the_exit_code_is_told(capfd):
    child, lines = await start("import sys; print('one'); print('two', file=sys.stderr); exit(3)")
    assert await child.wait() == 3
    assert {await lines.get(), await lines.get()} == {"one", "two"}
    await child.stop(1)
    assert {"one", "two"} <= set(capfd.readouterr().out.split())


async def test_its_last_words_are_heard_before_its_end_is_told():
    heard = []

    def hear(line):
        time.sleep(0.02)  # a reader that gets little of a CPU
        heard.append(line)
        return line

    script = "for n in range(20): print(n)\nraise ValueError('why')"
    child = await Child.start([sys.executable, "-c", script], os.environ, hear)
    assert await child.wait() == 1
    assert heard[-1] == "ValueError: why"
    await child.stop(1)


@pytest.mark.parametrize("mood", ["polite", "deaf"])
async def test_stop_leaves_no_process_of_the_group(mood, monkeypatch):
    monkeypatch.setattr("rwkv_server.parent.child._LINGER_S", 0.1)
    child, lines = await start(FAMILY, mood)
    grandchild = int((await lines.get()).split()[1])
    assert exists(grandchild)
    await child.stop(0.2)
    assert not exists(child.pid)
    assert not exists(grandchild)
    assert await child.wait() == (-15 if mood == "polite" else -9)


async def test_a_killed_leader_leaves_nothing_either(monkeypatch):
    monkeypatch.setattr("rwkv_server.parent.child._LINGER_S", 0.1)
    # Its child holds the pipe open.
    monkeypatch.setattr("rwkv_server.parent.child._LAST_WORDS_S", 0.1)
    child, lines = await start(FAMILY, "polite")
    grandchild = int((await lines.get()).split()[1])
    os.kill(child.pid, 9)
    assert await child.wait() == -9
    await child.stop(1)
    assert not exists(grandchild)

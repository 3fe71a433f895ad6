from __future__ import annotations

import asyncio
import threading

import pytest

from rwkv_server.parent.background import in_thread


async def test_result_and_exception_come_back():
    assert await in_thread(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)


async def test_nobody_waits_for_a_call_that_hangs():
    hang = threading.Event()
    task = asyncio.create_task(in_thread(hang.wait))
    await asyncio.sleep(0)
    worker = threading.enumerate()[-1]
    assert worker.daemon
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    hang.set()
    worker.join()
    await asyncio.sleep(0)

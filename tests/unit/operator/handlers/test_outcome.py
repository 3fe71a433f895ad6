import asyncio
from collections.abc import Callable

import pytest

from rwkv_operator import errors
from rwkv_operator.handlers.outcome import Retries, work
from rwkv_operator.handlers.queue import WorkQueue
from rwkv_operator.metrics import Metrics

A = ("talk", "a")


def test_errors_in_a_row_wait_longer_each_time_and_at_most_a_minute() -> None:
    retries = Retries()
    assert [retries.after_error(A) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    retries.after_success(A)
    assert retries.after_error(A) == 1


async def test_what_is_only_early_is_looked_at_again_in_time_and_makes_no_row_of_errors() -> None:
    early, error = errors.NotYet("the former one is going", 2.0), errors.ClusterError("no answer")
    results: list[object] = [error, early, early, error, None]
    delays: list[float] = []
    await run_until(results, delays, lambda: not results)
    assert delays == [1, 2, 2, 1]


async def run_until(
    results: list[object], delays: list[float], done: Callable[[], bool]
) -> list[tuple[str, str]]:
    """Work with a pass that gives these results; the delays are noted and not waited for."""
    queue = WorkQueue(Metrics())
    looked: list[tuple[str, str]] = []

    async def reconcile(namespace: str, name: str) -> float | None:
        looked.append((namespace, name))
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[return-value]

    def note(seconds: float) -> float:
        delays.append(seconds)
        return 0.0

    queue.add(A)
    worker = asyncio.ensure_future(work(queue, reconcile, Retries(), note))
    while not done():
        await asyncio.sleep(0.001)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    return looked


@pytest.mark.parametrize(
    "error",
    [errors.ClusterError("no answer"), errors.Conflict("changed"), ZeroDivisionError("a defect")],
)
async def test_after_an_error_it_is_tried_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    results: list[object] = [error, error, None]
    delays: list[float] = []
    looked = await run_until(results, delays, lambda: not results)
    assert looked == [A, A, A]
    assert delays == [1, 2]
    assert "talk/a" in caplog.text


async def test_after_a_look_the_next_is_planned() -> None:
    results: list[object] = [300.0, None]
    delays: list[float] = []
    await run_until(results, delays, lambda: not results)
    assert delays == [300.0]

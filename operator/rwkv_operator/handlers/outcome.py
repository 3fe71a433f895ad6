"""What follows from a pass: when to look again, and how long to wait after an error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from rwkv_operator import errors
from rwkv_operator.handlers.queue import Key, WorkQueue

_log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 60.0

Reconcile = Callable[[str, str], Awaitable[float | None]]
Jitter = Callable[[float], float]


class Retries:
    """Waiting times after errors, longer each time in a row; one entry per failing deployment."""

    def __init__(self) -> None:
        """Start without any failure."""
        self._failures: dict[Key, int] = {}

    def after_error(self, key: Key) -> float:
        """Seconds to wait after one more failure."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        return float(min(FIRST_RETRY_SECONDS * 2**count, LAST_RETRY_SECONDS))

    def after_success(self, key: Key) -> None:
        """Start over."""
        self._failures.pop(key, None)


async def work(queue: WorkQueue, reconcile: Reconcile, retries: Retries, jitter: Jitter) -> None:
    """One worker: take a key, look at it, plan the next look; for ever.

    Args:
        queue: where keys come from and go to.
        reconcile: one pass over one deployment.
        retries: shared by all workers.
        jitter: spreads a delay, so that many deployments don't wake at once.
    """
    while True:
        key = await queue.take()
        try:
            delay = await reconcile(*key)
        except errors.NotYet as early:
            retries.after_success(key)
            _log.info("%s/%s: %s; again in %g s", *key, early, early.seconds)
            queue.add_later(key, jitter(early.seconds))
        except errors.ClusterError as error:
            wait = retries.after_error(key)
            _log.warning("%s/%s: %s; again in %g s", *key, error, wait)
            queue.add_later(key, jitter(wait))
        except asyncio.CancelledError:
            raise
        except Exception:
            # A defect in one deployment's pass must not end the work on all others.
            wait = retries.after_error(key)
            _log.exception("%s/%s: unexpected error; again in %g s", *key, wait)
            queue.add_later(key, jitter(wait))
        else:
            retries.after_success(key)
            if delay is not None:
                queue.add_later(key, jitter(delay))
        finally:
            queue.done(key)

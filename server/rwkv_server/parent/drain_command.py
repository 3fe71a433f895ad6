"""`rwkv-server drain`: what Kubernetes runs before it sends SIGTERM.

Runs in a container under load and perhaps with a small CPU quota: standard library only.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable

POLL_S = 0.3


def post_drain(port: int) -> bool | None:
    """Ask the parent to drain; whether it is done, or None if there is no parent."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/drain", data=b"", method="POST")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return bool(json.load(answer)["drained"])
    except (urllib.error.URLError, OSError):
        return None


def run_drain(
    port: int,
    timeout_s: float,
    post: Callable[[int], bool | None] = post_drain,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Start the drain, wait until it is over, and say how it ended.

    Never fails: a hook that fails only hides the pod's own story behind an event.
    """
    started = clock()
    while True:
        drained = post(port)
        if drained is None:
            return f"nothing to drain: no parent answers on port {port}"
        if drained:
            return f"drained in {clock() - started:.1f} s"
        if clock() - started > timeout_s:
            return f"gave up waiting for the drain after {timeout_s:.0f} s"
        sleep(POLL_S)

"""The pod's last words: a JSON object in the file that Kubernetes reads when a container ends.

The operator turns them into a condition, so they must stay JSON within the kubelet's 4096 bytes.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from rwkv_server.errors import Fact, ServerError

LIMIT = 4096
_FACT_LIMIT = 1000


def build_message(error: ServerError, limit: int = LIMIT) -> bytes:
    """At most `limit` bytes of JSON: {reason, message, found, wanted}."""
    words = {
        "reason": error.reason,
        "message": error.message,
        "found": _bounded(error.found),
        "wanted": _bounded(error.wanted),
    }
    encoded = _encode(words)
    while len(encoded) > limit:
        kept = len(str(words["message"])) - max(1, (len(encoded) - limit) // 4) - 1
        words["message"] = error.message[: max(kept, 0)] + "…"
        encoded = _encode(words)
    return encoded


def write_message(error: ServerError, path: Path) -> None:
    """Write the last words, if Kubernetes made the file: outside a pod there is nobody to read.

    The exit code tells the reason too, so a file that can't be written changes nothing.
    """
    with contextlib.suppress(OSError):
        if path.is_file():
            path.write_bytes(build_message(error))


def _encode(words: dict[str, Fact]) -> bytes:
    return json.dumps(words, ensure_ascii=False).encode("utf-8", errors="replace")


def _bounded(fact: Fact) -> Fact:
    """The fact, or what fits of it; a map stays a map, because the operator reads it as one."""
    if isinstance(fact, dict):
        kept = dict(fact)
        while len(_dump(kept)) > _FACT_LIMIT:
            kept.popitem()
        return kept
    text = _dump(fact)
    return fact if len(text) <= _FACT_LIMIT else text.decode()[:200] + "…"


def _dump(fact: Fact) -> bytes:
    return json.dumps(fact, ensure_ascii=False).encode("utf-8", errors="replace")

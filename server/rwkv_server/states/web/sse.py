"""vLLM's streams of server-sent events: what passes at once, and what is held until a commit.

From the chunk with a finish reason on nothing passes, because the last one will tell the state. All
other chunks pass as they are; only those with a usage are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DONE = b"[DONE]"
_PREFIX = b"data: "
_END = b"\n\n"
# Within a string a quote has a backslash before it, so these are never the model's words.
_READ = (b'"finish_reason":"', b'"usage":{', b'"error":{')


@dataclass
class Stream:
    """One answer in pieces.

    Attributes:
        correct: mends a usage in place.
        held: chunks from the one with the finish reason on.
        done: whether the stream's own end has come.
        failed: whether it told of an error.
    """

    correct: Callable[[dict[str, Any]], None]
    held: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False
    failed: bool = False
    _rest: bytes = b""

    def feed(self, part: bytes) -> bytes:
        """What of a part may pass now."""
        *events, self._rest = (self._rest + part).split(_END)
        return b"".join(self._take(event) for event in events)

    def _take(self, event: bytes) -> bytes:
        data = event.removeprefix(_PREFIX)
        if data == DONE:
            self.done = True
            return b""
        if not self.held and not any(mark in data for mark in _READ):
            return event + _END
        chunk = json.loads(data)
        self.failed = self.failed or "error" in chunk
        if self.held or finish_of(chunk) is not None:
            self.held.append(chunk)
            return b""
        if isinstance(chunk.get("usage"), dict):
            self.correct(chunk["usage"])
        return write_event(chunk)

    def end(self, told: dict[str, Any], with_usage: bool) -> bytes:
        """What was held, with `told` in its last chunk, and the stream's end.

        Args:
            told: fields for the last chunk.
            with_usage: whether the client asked for the chunk of the usage.
        """
        chunks = [c for c in self.held if with_usage or c.get("choices")]
        for chunk in chunks:
            if isinstance(chunk.get("usage"), dict):
                self.correct(chunk["usage"])
        if chunks:
            chunks[-1].update(told)
        written = b"".join(map(write_event, chunks)) + self._rest
        return written + (_PREFIX + DONE + _END if self.done else b"")


def finish_of(chunk: dict[str, Any]) -> str | None:
    """Why the chunk ends its answer, if it does."""
    for choice in chunk.get("choices") or ():
        if choice.get("finish_reason") is not None:
            return str(choice["finish_reason"])
    return None


def write_event(chunk: dict[str, Any]) -> bytes:
    """A chunk as an event."""
    return _PREFIX + json.dumps(chunk, ensure_ascii=False, separators=(",", ":")).encode() + _END

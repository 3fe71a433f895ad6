"""The events of a streamed Response: what passes at once, and what is held until a commit.

The first two and the last carry the Response itself, and get what it says of states; the last one
waits. All others pass as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_END = b"\n\n"
_EVENT, _DATA = b"event: ", b"\ndata: "
_WHOLE = (b"response.created", b"response.in_progress", b"response.queued")
_LAST = (b"response.completed", b"response.incomplete", b"response.failed")

Mend = Callable[[dict[str, Any]], None]


@dataclass
class ResponseStream:
    """One Response in pieces.

    Attributes:
        mend: changes a Response in place.
        last: the last event, once it has come.
    """

    mend: Mend
    last: dict[str, Any] | None = None
    _rest: bytes = b""

    def feed(self, part: bytes) -> bytes:
        """What of a part may pass now."""
        *events, self._rest = (self._rest + part).split(_END)
        return b"".join(self._take(event) for event in events)

    def _take(self, event: bytes) -> bytes:
        name = event.removeprefix(_EVENT).partition(b"\n")[0]
        if name in _LAST:
            self.last = json.loads(event.partition(_DATA)[2])
            self.mend(self.last["response"])
            return b""
        if name not in _WHOLE:
            return event + _END
        content = json.loads(event.partition(_DATA)[2])
        self.mend(content["response"])
        return write_event(content)

    def end(self, told: dict[str, Any]) -> bytes:
        """What was held, with `told` in its Response."""
        rest, self._rest = self._rest, b""
        if self.last is None:
            return rest
        self.last["response"].update(told)
        return write_event(self.last) + rest


def write_event(content: dict[str, Any]) -> bytes:
    """An event in vLLM's form."""
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return _EVENT + str(content["type"]).encode() + _DATA + data + _END

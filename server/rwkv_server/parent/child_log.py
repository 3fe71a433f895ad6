"""Read the child's log: pass it on, see how far loading is, keep the line that explains a death.

vLLM's log lines are no interface, so everything here is a hint: an unknown line changes nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator

from rwkv_server.parent.status import Progress

MAX_LINE = 64 << 10
KEPT_LINES = 400
MAX_CAUSE = 500

# `(Worker pid=12) ERROR 11-29 17:00:00 [core.py:1] ` and what remains of it.
_PREFIX = re.compile(
    r"^(?:\([^)]*pid=\d+\)\s*)*"
    r"(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? )?"
    r"(?:\[[\w./-]+:\d+\] ?)?"
)
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b(?::|$)")
# Raised because of another failure, which stands further up.
_CONSEQUENCES = re.compile(
    r"initialization failed|died unexpectedly|EngineDeadError|CancelledError|KeyboardInterrupt"
    r"|cancelled|Server stopped"
)
_SHARDS = re.compile(r"checkpoint shards:\s+(\d+)% Completed")
_STAGES = (
    (re.compile(r"non-default args:"), "starting the engine"),
    (re.compile(r"Initializing a V1 LLM engine"), "starting the engine's worker"),
    (re.compile(r"Starting to load model"), "loading the weights"),
    (re.compile(r"Loading weights took|Model loading took"), "preparing the state cache"),
    (re.compile(r"Capturing CUDA graphs|[Ww]arming up|Graph capturing"), "warming up"),
    (re.compile(r"Starting vLLM (?:API )?server|Application startup"), "opening the HTTP port"),
)


def split_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines of a byte stream; progress bars end theirs with a carriage return."""
    rest = b""
    for chunk in chunks:
        *lines, rest = re.split(rb"\r\n|\n|\r", rest + chunk)
        for line in lines:
            if line:
                yield line.decode("utf-8", "replace")
        if len(rest) > MAX_LINE:
            yield rest.decode("utf-8", "replace")
            rest = b""
    if rest:
        yield rest.decode("utf-8", "replace")


def parse_progress(line: str) -> Progress | None:
    """What a line says about loading, if anything."""
    shards = _SHARDS.search(line)
    if shards:
        return Progress("loading the weights", int(shards.group(1)))
    for pattern, message in _STAGES:
        if pattern.search(line):
            return Progress(message)
    return None


def find_cause(lines: Iterable[str]) -> str:
    """The line that most likely says why the child ended: its first real exception, else its last.

    vLLM's processes report each other's deaths, so the last exception is only a consequence.
    """
    bare = [_PREFIX.sub("", line).strip() for line in lines]
    bare = [line for line in bare if line]
    exceptions = [line for line in bare if _EXCEPTION.match(line)]
    causes = [line for line in exceptions if not _CONSEQUENCES.search(line)]
    best = causes[:1] or exceptions[-1:] or bare[-1:] or ["it wrote nothing"]
    return best[0][:MAX_CAUSE]


class ChildLog:
    """The last lines of the child's log, with the key taken out."""

    def __init__(self, secret: str) -> None:
        """Remember what must never be shown."""
        self._secret = secret
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)

    def add(self, line: str) -> str:
        """Keep a line and return it as it may be shown."""
        shown = line.replace(self._secret, "***")
        self._lines.append(shown)
        return shown

    @property
    def cause(self) -> str:
        """Why the child ended, in its own words."""
        return find_cause(list(self._lines))

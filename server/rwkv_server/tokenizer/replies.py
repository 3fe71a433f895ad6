"""A World model's reply, as text that arrives in pieces: thinking, words, calls of tools.

Pure, and the same whether the pieces are tokens or the whole reply: what is not yet certain is held
back, `finish` gives it away. A call is a fenced or lone piece of JSON with the name of a tool that
was offered; other JSON is words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

THINK_END = "</think>"
# A turn of somebody else's ends the reply; the first of these that fits takes its blank line along.
STOPS = ("\n\nUser:", "\nUser:", "\n\nSystem:")
FENCE = "```"
_LONGEST_WORD = len("-Infinity")
_INFO = re.compile(r"[ \t]*\w*[ \t]*\n")


@dataclass(frozen=True)
class Call:
    """One call of a tool; `arguments` is JSON."""

    name: str
    arguments: str


class Thinking:
    """Splits a reply whose prompt ended inside `<think`.

    Attributes:
        ended: the closing tag was seen.
    """

    def __init__(self) -> None:
        """Before the first piece."""
        self.ended = False
        self._held = ""
        self._opened = self._began = False

    def feed(self, piece: str) -> tuple[str, str]:
        """Take a piece; returns what is certain to be thought, and what is certain to be said."""
        if self.ended:
            return "", piece
        self._held += piece
        if not self._opened and self._held:
            # The tag's own bracket, which the prompt leaves to the model.
            self._held, self._opened = self._held.removeprefix(">"), True
        if not self._began:
            self._held = self._held.lstrip()
            self._began = bool(self._held)
        thought, closing, said = self._held.partition(THINK_END)
        if closing:
            self.ended, self._held = True, ""
            return thought.rstrip(), said
        certain = thought[: len(thought) - _overlap(thought, THINK_END)].rstrip()
        self._held = self._held[len(certain) :]
        return certain, ""

    def finish(self) -> str:
        """The rest of the thought, where the tag never came."""
        rest, self._held = self._held.rstrip(), ""
        return rest


class Calls:
    """Splits what a reply says into words and calls; leading white space goes."""

    def __init__(self, names: Collection[str]) -> None:
        """Before the first piece; only tools in `names` can be called."""
        starts = [json.dumps(name, ensure_ascii=False) for name in names]
        self._names = frozenset(names)
        # How the JSON of a call begins, without its white space.
        self._openings = [f'{{"name":{name}' for name in starts] + ['{"arguments":{']
        self._held = ""
        # At the beginning and after a call: white space here isn't said, JSON may be a call.
        self._fresh = True
        self._quoting = False
        # Whether JSON or its block may end in the last piece: a long one is read only then.
        self._ends = False

    def feed(self, piece: str) -> list[str | Call]:
        """Take a piece; returns what is certain by now."""
        self._held += piece
        self._ends = any(mark in piece for mark in "}]`")
        return self._take(last=False)

    def finish(self) -> list[str | Call]:
        """The rest, as what it is without more."""
        return self._take(last=True)

    def _take(self, last: bool) -> list[str | Call]:
        found: list[str | Call] = []
        while True:
            step = self._step(last)
            if not step:
                return found
            for item in step:
                self._fresh = isinstance(item, Call)
                found.append(item)

    def _step(self, last: bool) -> list[str | Call]:
        """The next certain items at the head of what is held; empty when more is needed."""
        if self._fresh:
            self._held = self._held.lstrip()
        if not self._held:
            return []
        if not self._names or self._quoting:
            return self._words(last)
        if self._fresh and self._held[0] in "[{" and self._may_be_call(self._held):
            return self._lone(last)
        at = self._held.find(FENCE)
        if at < 0:
            return self._words(last)
        if words := self._held[:at].rstrip():
            return self._cut(len(words))
        return self._block(at, last)

    def _lone(self, last: bool) -> list[str | Call]:
        """JSON at the head, without a fence; what follows it is none of its business."""
        if not (last or self._ends):
            return []
        try:
            value, end = json.JSONDecoder().raw_decode(self._held)
        except (ValueError, RecursionError):
            return self._cut(len(self._held)) if last else []
        calls = find_calls(value, self._names)
        if not calls:
            return self._cut(end)
        self._held = self._held[end:]
        return list(calls)

    def _block(self, at: int, last: bool) -> list[str | Call]:
        """A fenced block, after `at` characters of white space."""
        start = at + len(FENCE)
        info = _INFO.match(self._held, start)
        if info is None:
            if "\n" in self._held[start:] or last:
                return self._quote(start)
            return []
        body = self._held[info.end() :].lstrip()
        if not self._may_be_call(body):
            return self._quote(info.end())
        if not (last or self._ends):
            return []
        # The block ends at a fence after the JSON: a text inside may hold fences of its own.
        try:
            value, end = json.JSONDecoder().raw_decode(body)
        except json.JSONDecodeError as error:
            return self._quote(info.end()) if last or not _is_cut(body, error) else []
        except (ValueError, RecursionError):
            return self._quote(info.end())
        rest = body[end:].lstrip()
        if not last and FENCE != rest and FENCE.startswith(rest):
            return []
        calls = find_calls(value, self._names)
        if not calls or (rest and not rest.startswith(FENCE)):
            return self._quote(info.end())
        self._held = rest.removeprefix(FENCE)
        return list(calls)

    def _quote(self, length: int) -> list[str | Call]:
        """Words up to `length`, which open a block of something else."""
        self._quoting = True
        return self._cut(length)

    def _words(self, last: bool) -> list[str | Call]:
        """Words up to the next fence or what may become one."""
        at = self._held.find(FENCE)
        if self._quoting and at >= 0:
            self._quoting = False
            return self._cut(at + len(FENCE))
        if last or not self._names:
            return self._cut(len(self._held))
        certain = len(self._held) - _overlap(self._held, FENCE)
        # White space waits: it may stand before a call, where it isn't said.
        certain = len(self._held[:certain].rstrip())
        return self._cut(certain) if certain else []

    def _cut(self, length: int) -> list[str | Call]:
        words, self._held = self._held[:length], self._held[length:]
        return [words]

    def _may_be_call(self, body: str) -> bool:
        packed = re.sub(r"\s+", "", body[:4096]).removeprefix("[")
        return any(o.startswith(packed) or packed.startswith(o) for o in self._openings)


def find_calls(value: Any, names: Collection[str]) -> list[Call]:
    """The calls that `value` is, one object or a list of them; empty if it is anything else."""
    calls = [_parse_call(item, names) for item in (value if isinstance(value, list) else [value])]
    return [call for call in calls if call] if all(calls) else []


def _parse_call(value: Any, names: Collection[str]) -> Call | None:
    if not isinstance(value, dict) or not value.keys() <= {"name", "arguments"}:
        return None
    name, arguments = value.get("name"), value.get("arguments", {})
    if not isinstance(name, str) or name not in names or not isinstance(arguments, dict):
        return None
    return Call(name, json.dumps(arguments, ensure_ascii=False))


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    """Whether more text may heal an error: inside a string, or in the last word or escape."""
    return error.msg.startswith("Unterminated string") or len(text) - error.pos < _LONGEST_WORD


def _overlap(text: str, tag: str) -> int:
    """Characters at the end of `text` that may be the beginning of `tag`."""
    lengths = range(min(len(tag) - 1, len(text)), 0, -1)
    return next((length for length in lengths if text.endswith(tag[:length])), 0)

"""Bounds on a request that vLLM takes for granted, and ends with an internal error without them.

How deep its JSON nests, how large its integers, lists and grammars are, and that an object is one.
What a field means stays vLLM's business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rwkv_server.web.errors import Refusal

# Twice what vLLM allows a JSON schema, which the request has around it.
MAX_DEPTH = 128

# What vLLM's messages between processes have room for.
SMALLEST, LARGEST = -(1 << 63), (1 << 64) - 1

# Where a grammar may be, and its length as JSON: compiling takes time and memory with it, at worst
# a minute and a gigabyte for this much. A prompt has its own bound, and so have the tools in it.
GRAMMARS = ("structured_outputs", "response_format", "text")
MAX_GRAMMAR = 120_000

# Lists that vLLM goes through item by item while all other requests wait.
LISTS = ("messages", "input", "tools")
MAX_ITEMS = 20_000

# vLLM asks these for their fields before it asks what they are.
OBJECTS = ("structured_outputs",)

# Integers without a bound of vLLM's own, which it reads from text too.
INTEGERS = ("top_k", "stream_interval")
DETECTION = "repetition_detection"

_LONG = re.compile(rb"\d{19}")


def check_shape(request: Mapping[str, Any], body: bytes) -> None:
    """Raise a Refusal with 400 if `request`, parsed from `body`, breaks a bound."""
    for name in OBJECTS:
        if not isinstance(request.get(name), dict | None):
            raise Refusal(400, "invalid_type", f"{name} must be an object.", param=name)
    for name in LISTS:
        _check_count(name, request.get(name))
    for name, value in request.items():
        _check_depth(name, value)
    if len(body) > MAX_GRAMMAR:
        for name in GRAMMARS:
            _check_length(name, request.get(name))
    if _LONG.search(body):
        for name, value in request.items():
            _check_integers(name, value)


def _check_depth(name: str, value: Any) -> None:
    level, depth = _containers([value]), 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise _too_deep(name)
        for item in level:
            if isinstance(item, dict) and isinstance(item.get("arguments"), str):
                _check_arguments(name, item["arguments"])
        level = _containers(child for item in level for child in _children(item))


def _check_arguments(name: str, text: str) -> None:
    """A call in an earlier reply is JSON in a string, which vLLM parses; or no JSON at all."""
    try:
        _check_depth(name, json.loads(text))
    except RecursionError:
        raise _too_deep(name) from None
    except ValueError:
        pass


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, list) and len(value) > MAX_ITEMS:
        text = f"{name} has {len(value)} items, {MAX_ITEMS} are the most."
        raise Refusal(400, "invalid_value", text, param=name)


def _check_length(name: str, value: Any) -> None:
    length = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    if length > MAX_GRAMMAR:
        text = f"{name} has {length} characters, {MAX_GRAMMAR} are the most."
        raise Refusal(400, "invalid_value", text, param=name)


def _check_integers(name: str, value: Any) -> None:
    if name in INTEGERS:
        _check_integer(name, _number(value))
    if name == DETECTION and isinstance(value, dict):
        for field, part in value.items():
            _check_integer(f"{name}.{field}", _number(part))
    waiting = [value]
    while waiting:
        item = waiting.pop()
        _check_integer(name, item)
        waiting.extend(_children(item))


def _check_integer(name: str, value: Any) -> None:
    if isinstance(value, int) and not SMALLEST <= value <= LARGEST:
        text = f"{name} holds an integer outside {SMALLEST} to {LARGEST}."
        raise Refusal(400, "invalid_value", text, param=name)


def _number(value: Any) -> Any:
    try:
        return int(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _containers(items: Iterable[Any]) -> list[Any]:
    return [item for item in items if isinstance(item, dict | list)]


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()


def _too_deep(name: str) -> Refusal:
    return Refusal(400, "invalid_value", f"{name} nests more than {MAX_DEPTH} levels.", param=name)

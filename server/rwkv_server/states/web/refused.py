"""Refusals of vLLM's own routes, without what the engine alone is told. Pure.

vLLM 0.18 repeats the whole request in what it says of a bad one, and the request that it saw has
the connector's signed parameters.
"""

from __future__ import annotations

import json
import re
from typing import Any

from rwkv_server.states.connector import params

# What was wrong, in pydantic's list of errors.
_SAID = re.compile(r"""'msg': (?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""")


def without_transfer(body: bytes) -> bytes:
    """The body of a refusal, with what was wrong alone if more is in it than its client sent."""
    if not any(name.encode() in body for name in (params.FIELD, params.SIGNATURE)):
        return body
    told: dict[str, Any] = {"error": {"type": "Bad Request", "code": 400, "param": None}}
    said: dict[str, None] = {}
    try:
        found = json.loads(body)["error"]
        said = dict.fromkeys(one or other for one, other in _SAID.findall(found["message"]))
        told["error"] |= {name: found.get(name) for name in ("type", "code", "param")}
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # nothing of it is shown then
    told["error"]["message"] = "; ".join(said) or "vLLM refuses this request"
    return json.dumps(told, ensure_ascii=False).encode()

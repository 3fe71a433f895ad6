"""Which paths an engine answers, and to whom.

vLLM mounts far more than an OpenAI endpoint needs, and its key guards only some prefixes. What is
not in `ALLOWED` doesn't exist. A test walks vLLM's own routes and fails on one that nobody looked
at.
"""

from __future__ import annotations

import ipaddress
import re
from enum import Enum

from rwkv_server.web.errors import Refusal


class Access(Enum):
    """Who may call a route."""

    KEY = "the internal key"
    LOOPBACK = "this pod only"


# What vLLM answers.
ALLOWED: dict[str, tuple[str, Access]] = {
    "/v1/models": ("GET", Access.KEY),
    "/v1/chat/completions": ("POST", Access.KEY),
    "/v1/completions": ("POST", Access.KEY),
    "/v1/responses": ("POST", Access.KEY),
    "/health": ("GET", Access.LOOPBACK),
    "/metrics": ("GET", Access.LOOPBACK),
}

# What the states answer; a name in braces stands for one segment. The internal ones are for other
# engines and for the parent process: routers don't let them in.
STATES: dict[str, tuple[tuple[str, ...], Access]] = {
    "/openapi.json": (("GET",), Access.KEY),
    "/v1/states": (("GET", "POST", "DELETE"), Access.KEY),
    "/v1/states/{ref}": (("GET", "DELETE"), Access.KEY),
    "/v1/states/{ref}/content": (("GET", "PUT"), Access.KEY),
    "/v1/states/{ref}/fork": (("POST",), Access.KEY),
    "/v1/states/{ref}/touch": (("POST",), Access.KEY),
    "/v1/sessions/{id}": (("GET", "DELETE"), Access.KEY),
    "/v1/responses/{id}": (("GET", "DELETE"), Access.KEY),
    "/v1/rwkv/state/capabilities": (("GET",), Access.KEY),
    "/v1/rwkv/state/upload": (("POST",), Access.KEY),
    "/v1/rwkv/state/{ref}": (("GET", "DELETE"), Access.KEY),
    "/v1/rwkv/state/{ref}/clone": (("POST",), Access.KEY),
    "/internal/states": (("GET", "DELETE"), Access.KEY),
    "/internal/states/{ref}": (("GET",), Access.KEY),
    "/internal/states/{ref}/content": (("GET",), Access.KEY),
    "/internal/turns": (("DELETE",), Access.KEY),
    "/internal/sessions/{id}": (("GET",), Access.KEY),
    "/internal/sessions/{id}/claim": (("POST",), Access.KEY),
    "/internal/sessions/{id}/end": (("POST",), Access.KEY),
    "/internal/flush": (("POST",), Access.LOOPBACK),
}

GENERATING = frozenset(path for path, (method, _) in ALLOWED.items() if method == "POST")

_TEMPLATES = [
    (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), methods, access)
    for path, (methods, access) in STATES.items()
    if "{" in path
]


def find_access(method: str, path: str) -> Access:
    """Who may call this route; a Refusal with 404 or 405 if nobody may."""
    found = _find(path)
    if found is None:
        raise Refusal(404, "not_found", f"No route {method} {path[:200]}.")
    methods, access = found
    if method not in methods:
        raise Refusal(
            405,
            "method_not_allowed",
            f"{path[:200]} takes {' or '.join(methods)}, not {method}.",
            headers={"allow": ", ".join(methods)},
        )
    return access


def is_state(path: str) -> bool:
    """Whether the path is one of the states' own."""
    return path not in ALLOWED and _find(path) is not None


def is_write(method: str, path: str) -> bool:
    """Whether a request to a state's route changes something, so that a drain waits for it."""
    return method not in ("GET", "HEAD") and path != "/internal/flush" and path not in ALLOWED


def _find(path: str) -> tuple[tuple[str, ...], Access] | None:
    if path in ALLOWED:
        method, access = ALLOWED[path]
        return (method,), access
    if path in STATES:
        return STATES[path]
    for pattern, methods, access in _TEMPLATES:
        if pattern.fullmatch(path):
            return methods, access
    return None


def is_loopback(client: tuple[str, int] | None) -> bool:
    """Whether a connection comes from inside the pod."""
    if client is None:
        return False
    try:
        address = ipaddress.ip_address(client[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback

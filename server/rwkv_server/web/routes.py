"""Which paths an engine answers, and to whom.

vLLM mounts far more than an OpenAI endpoint needs, and its key guards only some prefixes. What is
not in `ALLOWED` doesn't exist. A test walks vLLM's own routes and fails on one that nobody looked
at.
"""

from __future__ import annotations

import ipaddress
from enum import Enum

from rwkv_server.web.errors import Refusal


class Access(Enum):
    """Who may call a route."""

    KEY = "the internal key"
    LOOPBACK = "this pod only"


ALLOWED: dict[str, tuple[str, Access]] = {
    "/v1/models": ("GET", Access.KEY),
    "/v1/chat/completions": ("POST", Access.KEY),
    "/v1/completions": ("POST", Access.KEY),
    "/v1/responses": ("POST", Access.KEY),
    "/health": ("GET", Access.LOOPBACK),
    "/metrics": ("GET", Access.LOOPBACK),
}

GENERATING = frozenset(path for path, (method, _) in ALLOWED.items() if method == "POST")


def find_access(method: str, path: str) -> Access:
    """Who may call this route; a Refusal with 404 or 405 if nobody may."""
    allowed = ALLOWED.get(path)
    if allowed is None:
        raise Refusal(404, "not_found", f"No route {method} {path[:200]}.")
    if method != allowed[0]:
        raise Refusal(
            405,
            "method_not_allowed",
            f"{path} takes {allowed[0]}, not {method}.",
            headers={"allow": allowed[0]},
        )
    return allowed[1]


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

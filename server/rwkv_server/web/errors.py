"""Refusals in the shape that OpenAI's clients parse: `{"error": {message, type, param, code}}`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.types import Send

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    410: "not_found_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    501: "not_implemented_error",
    503: "server_error",
    507: "server_error",
}


@dataclass(eq=False)  # not frozen: frameworks clear the traceback of what they handle
class Refusal(Exception):
    """An answer given instead of the route's own."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        """The JSON text of the answer."""
        error = {
            "message": self.message,
            "type": TYPES[self.status],
            "param": self.param,
            "code": self.code,
        }
        return json.dumps({"error": error}).encode()


async def send_refusal(refusal: Refusal, send: Send) -> None:
    """Send the whole answer over an ASGI channel."""
    body = refusal.body()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **refusal.headers,
    }
    await send(
        {
            "type": "http.response.start",
            "status": refusal.status,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body})

"""The texts with which a router answers by itself, all in the shape of OpenAI's errors.

One function per way to say it in HAProxy's language; which rule says what is in
`haproxy_request.py`. Texts are short: what happened, and what the client can do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

JSON_TYPE: Final = "content-type application/json"

NO_READY_POD: Final = "no model server is ready"
OVERLOADED: Final = "the model servers are busy; try again later"


def error_body(message: str, kind: str, code: str) -> str:
    """An error as OpenAI's clients read it."""
    error = {"message": message, "type": kind, "param": None, "code": code}
    return json.dumps({"error": error}, separators=(",", ":"))


def refuse(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> str:
    """The action that answers a request with a client's error; a condition follows it."""
    added = "".join(f" hdr {name} {value}" for name, value in (headers or {}).items())
    body = error_body(message, "invalid_request_error", code)
    return f"http-request return status {status} {JSON_TYPE}{added} string {quoted(body)}"


def default_errors() -> list[str]:
    """What HAProxy says where no rule of ours has spoken: for the `defaults` section."""
    return [
        _on_error(
            400, "invalid_request_error", "bad_request", "this is not a well-formed HTTP request"
        ),
        _on_error(
            408,
            "invalid_request_error",
            "request_timeout",
            "the request did not arrive in time",
        ),
        _on_error(500, "server_error", "router_error", "the router failed; try again"),
        _on_error(
            502,
            "server_error",
            "upstream_failed",
            "the model server ended the connection before it answered; the request may have run",
        ),
        _on_error(
            504, "server_error", "upstream_timeout", "the model server did not answer in time"
        ),
    ]


def unavailable() -> str:
    """Status 503, which means two things: no engine at all, or all of them busy.

    Only in a frontend: HAProxy 3.2.26 crashes on a formatted error of a `defaults` section.
    """
    code = _by_cause("no_ready_pod", "overloaded")
    message = _by_cause(NO_READY_POD, OVERLOADED)
    body = error_body("MESSAGE", "server_error", "CODE")
    text = body.replace("MESSAGE", message).replace("CODE", code)
    return f"http-error status 503 {JSON_TYPE} lf-string {quoted(text)} hdr retry-after 1"


def _by_cause(no_engine: str, left_the_queue: str) -> str:
    # The second letter of the termination state is Q where a request left a queue unserved.
    return (
        f'%[txn.sess_term_state,regsub("^.[^Q].*","{no_engine}"),'
        f'regsub("^.Q.*","{left_the_queue}")]'
    )


def _on_error(status: int, kind: str, code: str, message: str) -> str:
    body = error_body(message, kind, code)
    return f"http-error status {status} {JSON_TYPE} string {quoted(body)}"


def quoted(text: str) -> str:
    """A text in HAProxy's strong quotes, in which nothing has a special meaning."""
    if "'" in text:
        raise ValueError(f"a single quote would end the quoted text: {text}")
    return f"'{text}'"

"""The operator's own HTTP port: liveness, readiness and metrics.

It runs in threads of its own, so that it answers, and can tell of it, when the event loop is stuck.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from rwkv_operator.handlers.contact import Contact
from rwkv_operator.metrics import Metrics

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


@contextmanager
def serve(port: int, contact: Contact, metrics: Metrics, silence_seconds: float) -> Iterator[int]:
    """Answer on a port until the block ends; gives the port, which is chosen where it is 0."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path, contact, metrics, silence_seconds)
            self.send_response(status)
            self.send_header("Content-Type", _TEXT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes aren't worth a line each."""

    server = ThreadingHTTPServer(("", port), Handler)
    thread = threading.Thread(target=server.serve_forever, name="ops", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def answer(
    path: str, contact: Contact, metrics: Metrics, silence_seconds: float
) -> tuple[int, bytes]:
    """Status and body for a path."""
    age = contact.age()
    metrics.contact_age.set(age)
    match path:
        case "/livez":
            alive = age < silence_seconds
            return 200 if alive else 503, f"the API server was heard {age:.0f} s ago\n".encode()
        case "/readyz":
            return (200, b"ready\n") if contact.listed else (503, b"not listed yet\n")
        case "/metrics":
            return 200, metrics.render()
        case _:
            return 404, b"not found\n"

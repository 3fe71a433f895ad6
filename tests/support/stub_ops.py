"""Ops ports of engine and router pods on loopback addresses, where there is no kubelet.

Real sockets: the operator asks them as it asks pods. What they answer is set by the test.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rwkv_operator import names

ENGINES = ("127.77.0.1", "127.77.0.2")
ROUTERS = ("127.77.1.1", "127.77.1.2")
MODEL = {"digest": "sha256:5", "stateBytes": 1024, "vocabSize": 320}
STATES = {"count": 2, "bytes": 300}
STORE = {"kind": "perPod", "ok": True, "reason": "PerPod", "message": ""}


@dataclass
class Answers:
    """What pods say: by port and path, and by address where one pod differs."""

    common: dict[tuple[int, str], tuple[int, dict[str, Any]]] = field(default_factory=dict)
    own: dict[tuple[str, int, str], tuple[int, dict[str, Any]]] = field(default_factory=dict)

    def find(self, host: str, port: int, path: str) -> tuple[int, dict[str, Any]]:
        """Status and body for a request."""
        missing: tuple[int, dict[str, Any]] = (404, {})
        return self.own.get((host, port, path)) or self.common.get((port, path), missing)


def serving(config_hash: str) -> Answers:
    """Engines that have loaded, and routers that run that config."""
    return Answers(
        {
            (names.PORT_ENGINE_OPS, "/progress"): (200, {"phase": "Ready", "message": ""}),
            (names.PORT_ENGINE_OPS, "/report"): (
                200,
                {"model": MODEL, "store": STORE, "states": STATES},
            ),
            (names.PORT_AGENT, "/status"): (200, {"configHash": config_hash, "error": None}),
            (names.PORT_ROUTER_OPS, "/readyz"): (200, {}),
        }
    )


@contextlib.contextmanager
def listening(answers: Answers) -> Iterator[None]:
    """Listen for all engines and routers until the block ends."""
    addresses = [(host, names.PORT_ENGINE_OPS) for host in ENGINES] + [
        (host, port) for host in ROUTERS for port in (names.PORT_AGENT, names.PORT_ROUTER_OPS)
    ]
    with contextlib.ExitStack() as stack:
        for host, port in addresses:
            stack.enter_context(_server(host, port, answers))
        yield


@contextlib.contextmanager
def _server(host: str, port: int, answers: Answers) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers.find(host, port, self.path)
            payload = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((host, port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

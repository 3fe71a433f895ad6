"""An S3 server of few words: it keeps objects, knows no conditions, and fails as it is told."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes]
_EMPTY_LIST = (
    b'<?xml version="1.0"?><ListBucketResult><Name>states</Name><KeyCount>0</KeyCount>'
    b"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>"
)


def error(code: str) -> bytes:
    """The body of an error, as S3 servers write it."""
    return f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()


class CannedServer(ThreadingHTTPServer):
    """Serves until the block of `running` ends.

    Attributes:
        answer: for a method and a path what to say instead of serving; None serves.
        after: the same, asked when it was served.
        requests: methods and paths so far.
    """

    daemon_threads = False  # closing waits for them, and for their sockets

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.answer: Callable[[str, str], Answer | None] = lambda method, path: None
        self.after: Callable[[str, str], Answer | None] = lambda method, path: None
        self.requests: list[tuple[str, str]] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: CannedServer

    def _serve(self) -> None:
        path = self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, path))
        said = self.server.answer(self.command, path)
        if said is None:
            served = self._object(path, body)
            said = self.server.after(self.command, path) or served
        self._say(*said)

    def _object(self, path: str, body: bytes) -> Answer:
        objects = self.server.objects
        if self.command == "PUT":
            objects[path] = body
            return 200, b""
        if self.command == "DELETE":
            objects.pop(path, None)
            return 204, b""
        if "list-type" in self.path:
            return 200, _EMPTY_LIST
        return (200, objects[path]) if path in objects else (404, error("NoSuchKey"))

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = do_POST = _serve

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library's name
        pass


@contextlib.contextmanager
def running() -> Iterator[CannedServer]:
    """A server on a free port of loopback."""
    with CannedServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(5)

"""A hub on this machine, for both vendors' real clients, with faults on demand.

Speaks as much of the Hugging Face hub's and of ModelScope's HTTP API as a download needs. Large
files are redirected to another port, as the real hubs redirect to their stores. Standard library
only, so that it also runs alone in a pod:

    python hub_server.py --port 8080 --repo org/name=FOLDER [--token TOKEN]
"""

from __future__ import annotations

import argparse
import hashlib
import http.server
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

# Files from this size on are kept in the store behind the redirect, with a SHA-256.
LARGE = 4096
CHUNK = 16 << 10


@dataclass
class Fault:
    """What goes wrong with answers whose path contains `match`, `times` times.

    Kinds: status (a number in `value`), gated, cut (after `value` bytes), slow (`value` bytes a
    second), hold (no more than `value` bytes go out until a test raises it), corrupt (one byte is
    changed), ignore_range (the whole file, always).
    """

    kind: str
    match: str = ""
    times: int = 1_000_000
    value: int = 0


@dataclass
class Request:
    """One request that was answered, and how many bytes of a body went out."""

    path: str
    range: str | None
    secret: str
    sent: int = 0


@dataclass
class Repository:
    """One repository: revisions are folders."""

    revisions: dict[str, Path] = field(default_factory=dict)

    def find(self, revision: str) -> tuple[str, Path] | None:
        """Commit and folder of a branch, tag or commit."""
        for name, folder in self.revisions.items():
            if revision in (name, commit_of(folder)):
                return commit_of(folder), folder
        return None


def commit_of(folder: Path) -> str:
    """A commit id that changes with the folder's files."""
    parts = [f"{p.name} {_sha256(p)}" for p in sorted(folder.iterdir()) if p.is_file()]
    return hashlib.sha1("\n".join(parts).encode()).hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _git_id(path: Path) -> str:
    content = path.read_bytes()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


class HubServer:
    """Both hubs on one port and their store on another; use as a context manager."""

    def __init__(self, port: int = 0, store_port: int = 0, host: str = "127.0.0.1") -> None:
        """Bind both ports; nothing is answered yet."""
        self.repositories: dict[str, Repository] = {}
        self.token: str | None = None
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        # What the listing says, where that has to differ from the truth: file → SHA-256.
        self.wrong_digests: dict[str, str] = {}
        self.stopped = False
        self._lock = threading.Lock()
        self._hub = _listen(host, port, self, _HubHandler)
        # Another host, as in life: credentials for the hub must not follow the redirect.
        store_host = "127.0.0.2" if host == "127.0.0.1" else host
        self._store = _listen(store_host, store_port, self, _StoreHandler)

    def __enter__(self) -> HubServer:
        for server in (self._hub, self._store):
            # shutdown() waits for the loop's next look; the default is half a second.
            loop = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            loop.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Answer nobody any more; safe to call twice."""
        self.stopped = True
        for server in (self._hub, self._store):
            server.shutdown()
            server.server_close()

    def add(self, repo: str, folder: Path, revision: str = "main") -> None:
        """Serve `folder` as a revision, under both hubs' default branch names if it is one."""
        names = ("main", "master") if revision in ("main", "master") else (revision,)
        repository = self.repositories.setdefault(repo, Repository())
        repository.revisions.update(dict.fromkeys(names, folder))

    @property
    def url(self) -> str:
        """The endpoint for HF_ENDPOINT and MODELSCOPE_ENDPOINT."""
        return f"http://{self._hub.server_address[0]}:{self._hub.server_address[1]}"

    def sent(self, name: str) -> int:
        """Bytes of the file `name` that went out, over all requests."""
        return sum(request.sent for request in self.requests if request.path.endswith(name))

    def ranges(self, name: str) -> list[str | None]:
        """The Range headers of all requests that got bytes of the file `name`."""
        return [r.range for r in self.requests if r.path.endswith(name) and r.sent]

    def secrets(self) -> set[str]:
        """What the store was shown of credentials; has to be empty."""
        return {r.secret for r in self.requests if r.path.startswith("/store/") and r.secret}

    def take_fault(self, path: str, *kinds: str) -> Fault | None:
        """The first fault of these kinds for `path`, used up by one."""
        with self._lock:
            for fault in self.faults:
                if fault.kind in kinds and fault.match in path and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None


class _Server(http.server.ThreadingHTTPServer):
    """A client that was killed is no error of ours."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


def _listen(host: str, port: int, hub: HubServer, handler: type) -> http.server.ThreadingHTTPServer:
    bound = type(handler.__name__, (handler,), {"hub": hub})
    return _Server((host, port), bound)


class _Handler(http.server.BaseHTTPRequestHandler):
    """What both ports share: bodies in pieces, with faults."""

    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *parts: object) -> None:
        """Say nothing."""

    @property
    def secret(self) -> str:
        return "".join(self.headers.get(name, "") for name in ("Authorization", "Cookie"))

    def answer(self, status: int, body: Any = None, headers: dict[str, str] | None = None) -> None:
        """Send JSON, or nothing for None."""
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        given = {"Content-Type": "application/json", "Content-Length": str(len(content))}
        for name, value in (given | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_file(self, file: Path, logged: str, headers: dict[str, str]) -> None:
        """Send the file or the range asked for, with faults."""
        content = file.read_bytes()
        asked = self.headers.get("Range")
        if self.hub.take_fault(logged, "ignore_range"):
            asked = None
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        if start and start >= len(content):
            self.answer(416, headers={"Content-Range": f"bytes */{len(content)}"})
            return
        self.send_response(206 if asked else 200)
        if asked:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        headers |= {"Content-Length": str(len(content) - start), "Accept-Ranges": "bytes"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.hub.take_fault(logged, "corrupt"):
            content = content[:-1] + bytes([content[-1] ^ 1])
        request = Request(logged, self.headers.get("Range"), self.secret)
        self.hub.requests.append(request)
        self._send_pieces(content[start:], logged, request)

    def send_stored(self, path: str) -> None:
        """Send a file of the store."""
        _, _, owner, name, commit, file = path.split("/", 5)
        found = self.hub.repositories[f"{owner}/{name}"].find(commit)
        assert found is not None
        self.send_file(found[1] / file, path, {})

    def _send_pieces(self, content: bytes, logged: str, request: Request) -> None:
        cut = self.hub.take_fault(logged, "cut")
        slow = self.hub.take_fault(logged, "slow")
        hold = self.hub.take_fault(logged, "hold")
        size = max(1, min(CHUNK, slow.value // 20)) if slow else CHUNK
        end = min(len(content), cut.value) if cut else len(content)
        try:
            for position in range(0, end, size):
                while hold and position >= hold.value and not self.hub.stopped:
                    time.sleep(0.005)
                piece = content[position : min(end, position + size)]
                self.wfile.write(piece)
                self.wfile.flush()
                request.sent += len(piece)
                if slow:
                    time.sleep(len(piece) / slow.value)
        except OSError:
            pass  # the client went away
        if cut:
            self.close_connection = True
            self.connection.close()


class _StoreHandler(_Handler):
    """Where large files really are: no credentials are wanted here, and none may arrive."""

    def do_GET(self) -> None:
        self.send_stored(unquote(urlsplit(self.path).path))

    do_HEAD = do_GET


class _HubHandler(_Handler):
    """The two APIs."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path.startswith("/store/"):
            # We were asked as a proxy.
            self.send_stored(unquote(parts.path))
            return
        self.hub.requests.append(Request(unquote(parts.path), None, self.secret))
        fault = self.hub.take_fault(self.path, "status", "gated")
        if fault and fault.kind == "gated":
            self.answer(403, {"Code": 10010205, "error": "gated"}, {"X-Error-Code": "GatedRepo"})
        elif fault:
            self.answer(fault.value, {"Code": fault.value, "Message": "fault", "error": "fault"})
        elif self.hub.token is not None and self.hub.token not in self.secret:
            self.answer(401, {"error": "Invalid username or password", "Code": 401})
        elif parts.path.startswith("/api/v1/models/"):
            self._model_scope(unquote(parts.path), parse_qs(parts.query))
        else:
            self._hugging_face(unquote(parts.path))

    do_HEAD = do_GET

    def _hugging_face(self, path: str) -> None:
        listing = path.startswith("/api/models/")
        words = path.removeprefix("/api/models/" if listing else "/").split("/")
        repository = self.hub.repositories.get("/".join(words[:2]))
        if repository is None:
            self.answer(404, {"error": "no"}, {"X-Error-Code": "RepoNotFound"})
            return
        revision = unquote(words[3]) if len(words) > 3 else "main"
        found = repository.find(revision)
        if found is None:
            self.answer(404, {"error": "no"}, {"X-Error-Code": "RevisionNotFound"})
        elif listing:
            self.answer(200, self._siblings("/".join(words[:2]), *found))
        else:
            self._resolve("/".join(words[:2]), *found, "/".join(words[4:]))

    def _siblings(self, repo: str, commit: str, folder: Path) -> dict[str, Any]:
        files = []
        for file in _files(folder):
            entry: dict[str, Any] = {"rfilename": file.name, "size": file.stat().st_size}
            entry["blobId"] = _git_id(file)
            if file.stat().st_size >= LARGE:
                digest = self.hub.wrong_digests.get(file.name) or _sha256(file)
                entry["lfs"] = {"sha256": digest, "size": entry["size"], "pointerSize": 130}
            files.append(entry)
        return {"_id": "1", "id": repo, "modelId": repo, "sha": commit, "siblings": files}

    def _resolve(self, repo: str, commit: str, folder: Path, name: str) -> None:
        file = folder / name
        if not file.is_file():
            self.answer(404, {"error": "no"}, {"X-Error-Code": "EntryNotFound"})
            return
        headers = {"X-Repo-Commit": commit, "ETag": f'"{_git_id(file)}"'}
        self._send_or_redirect(repo, commit, file, headers)

    def _send_or_redirect(
        self, repo: str, commit: str, file: Path, headers: dict[str, str]
    ) -> None:
        if file.stat().st_size < LARGE:
            self.send_file(file, f"/{repo}/{file.name}", headers)
            return
        host, port = self.hub._store.server_address[:2]
        if host == "0.0.0.0":
            host = self.headers["Host"].rpartition(":")[0]
        digest = _sha256(file)
        location = f"http://{host}:{port}/store/{repo}/{commit}/{file.name}"
        linked = {"X-Linked-Size": str(file.stat().st_size), "X-Linked-ETag": f'"{digest}"'}
        self.answer(302, None, headers | linked | {"Location": location})

    def _model_scope(self, path: str, query: dict[str, list[str]]) -> None:
        owner, name, *rest = path.removeprefix("/api/v1/models/").split("/")
        repository = self.hub.repositories.get(f"{owner}/{name}")
        if repository is None:
            self.answer(404, {"Code": 10010205001, "Message": "no such model", "Success": False})
            return
        if not rest:
            self.answer(200, {"Code": 200, "Data": {"Path": owner, "Name": name}, "Success": True})
            return
        found = repository.find(query.get("Revision", ["master"])[0])
        if found is None:
            self.answer(404, {"Code": 10010205002, "Message": "no such revision"})
        elif rest == ["repo", "files"]:
            files = [self._ms_file(file, found[0]) for file in _files(found[1])]
            self.answer(200, {"Code": 200, "Data": {"Files": files}, "Success": True})
        else:
            file = found[1] / query["FilePath"][0]
            if file.is_file():
                self._send_or_redirect(f"{owner}/{name}", found[0], file, {})
            else:
                self.answer(404, {"Code": 10010205003, "Message": "no such file"})

    def _ms_file(self, file: Path, commit: str) -> dict[str, Any]:
        digest = self.hub.wrong_digests.get(file.name) or _sha256(file)
        return {
            "Name": file.name,
            "Path": file.name,
            "Type": "blob",
            "Size": file.stat().st_size,
            "Sha256": digest,
            "Revision": commit,
            "CommittedDate": 1,
        }


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.is_file())


@contextmanager
def running(**repositories: Path) -> Iterator[HubServer]:
    """A hub that serves each folder as `org/<keyword>`."""
    with HubServer() as hub:
        for name, folder in repositories.items():
            hub.add(f"org/{name}", folder)
        yield hub


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--store-port", type=int, default=8081)
    parser.add_argument("--repo", action="append", default=[], metavar="org/name=FOLDER")
    parser.add_argument("--token")
    options = parser.parse_args()
    with HubServer(options.port, options.store_port, "0.0.0.0") as hub:
        hub.token = options.token
        for repo in options.repo:
            name, _, folder = repo.partition("=")
            hub.add(name, Path(folder))
        print(f"serving {', '.join(hub.repositories)} at {hub.url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()

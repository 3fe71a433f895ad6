"""A real S3 server for tests: versitygw, built once from the Go module in tests/s3.

It keeps a bucket as a folder. Its create-only puts are atomic, its compare-and-swap isn't: just
what states may rely on.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rwkv_cluster.ports import free_port

MODULE = Path(__file__).resolve().parents[1] / "s3"
PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
BUCKET = "states"
_START_S = 20


@dataclass(frozen=True)
class Gateway:
    """A running server; its bucket exists."""

    endpoint: str
    access_key: str
    secret_key: str
    bucket: str = BUCKET

    def write_credentials(self, folder: Path) -> Path:
        """The files of a mounted Secret; returns the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "accessKeyId").write_text(self.access_key)
        (folder / "secretAccessKey").write_text(self.secret_key)
        return folder


def program() -> Path:
    """The static binary, built when missing: about a minute."""
    digest = hashlib.sha256(platform.machine().encode())
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    cache = Path(os.environ.get("RWKV_CACHE") or Path.home() / ".cache" / "rwkv-operator")
    target = cache / "bin" / f"versitygw-{digest.hexdigest()[:16]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            print(f"building versitygw into {target} (once; kept between runs)", flush=True)
            _build(target)
    return target


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Gateway]:
    """Serve `folder` on a free port of loopback until the block ends."""
    (folder / BUCKET).mkdir(parents=True)
    gateway = Gateway(f"http://127.0.0.1:{free_port()}", "test", secrets.token_hex(16))
    port = gateway.endpoint.rpartition(":")[2]
    environ = {**os.environ, "ROOT_ACCESS_KEY": "test", "ROOT_SECRET_KEY": gateway.secret_key}
    command = [str(program()), "--quiet", "--port", f"127.0.0.1:{port}", "posix", str(folder)]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(command, env=environ, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_for(process, int(port))
        yield gateway
    finally:
        process.terminate()
        process.wait(10)
        log.close()


def _build(target: Path) -> None:
    go = shutil.which("go") or "/usr/local/go/bin/go"
    scratch = target.with_suffix(".new")
    flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
    environ = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    command = [go, "build", *flags, "-o", str(scratch), PACKAGE]
    subprocess.run(command, cwd=MODULE, env=environ, check=True)
    scratch.rename(target)


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(f"versitygw doesn't answer on port {port} (exit code {process.poll()})")

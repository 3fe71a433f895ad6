"""A real S3 server for tests: versitygw, built once from its pinned Go module, over a folder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rwkv_cluster import build, tools
from rwkv_server.settings import S3

SOURCE = Path(__file__).resolve().parent / "s3_server"
PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
BUCKET = "states"
KEY_ID, SECRET = "test-key", "test-secret-of-no-use"


def find() -> Path:
    """The program; the first call on a machine builds it, which takes about 40 seconds."""
    files = [SOURCE / "go.mod", SOURCE / "go.sum"]
    told = [platform.machine().encode(), *(file.read_bytes() for file in files)]
    name = f"versitygw-{hashlib.sha256(b'/'.join(told)).hexdigest()[:16]}"
    folder = build.cache_dir() / "bin"
    program = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            unfinished = folder / f"{name}.new"
            command = [tools.find("go"), "build", "-mod=readonly", "-trimpath", "-buildvcs=false"]
            command += ["-ldflags", "-s -w", "-o", str(unfinished), PACKAGE]
            environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
            subprocess.run(command, cwd=SOURCE, env=environment, check=True)
            unfinished.rename(program)
    return program


@dataclass(frozen=True)
class S3Server:
    """One that runs, with an empty bucket.

    Attributes:
        endpoint: its address.
        folder: where it keeps buckets, one folder each.
        credentials: a folder as the operator mounts it.
    """

    endpoint: str
    folder: Path
    credentials: Path

    def settings(self, prefix: str = "", bucket: str = BUCKET) -> S3:
        """The engine's settings for it."""
        return S3.model_validate(
            {
                "bucket": bucket,
                "prefix": prefix,
                "endpoint": self.endpoint,
                "region": "us-east-1",
                "credentialsPath": str(self.credentials),
            }
        )


@contextlib.contextmanager
def running(folder: Path) -> Iterator[S3Server]:
    """A server over a new folder, until the block ends."""
    program = find()
    data, credentials = folder / "data", folder / "credentials"
    (data / BUCKET).mkdir(parents=True)
    credentials.mkdir()
    (credentials / "accessKeyId").write_text(KEY_ID)
    (credentials / "secretAccessKey").write_text(f"{SECRET}\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program, "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(data)]
    environment = {"ROOT_ACCESS_KEY": KEY_ID, "ROOT_SECRET_KEY": SECRET, "HOME": str(folder)}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        endpoint = f"http://127.0.0.1:{port}"
        _wait(endpoint, process, folder / "log")
        yield S3Server(endpoint, data, credentials)
    finally:
        process.terminate()
        process.wait(10)


def _wait(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < until:
        try:
            urllib.request.urlopen(endpoint, timeout=1)
        except urllib.error.HTTPError:
            return  # it wants a signature
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"versitygw doesn't answer at {endpoint}: {log.read_text()[-800:]}")

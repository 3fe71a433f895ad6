"""Runs `rwkv-server fetch` as a pod's init container would."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import engine_config
import httpx
from server_process import SERVER

from rwkv_cluster.ports import free_port

TOKEN = "hub-token-that-nothing-may-show"


def model_section(
    cache: Path, source: str, repo: str, revision: str = "main", **download: Any
) -> dict[str, Any]:
    """Fields of engine.yaml for a model from a hub."""
    fields = {
        "repo": repo,
        "revision": revision,
        "offline": False,
        "cacheDir": str(cache),
        "files": [],
    }
    return {
        "model__source": source,
        "model__path": str(cache / "hub" / "model"),
        "model__download": fields | download,
    }


class FetchProcess:
    """One running fetch; its folder holds config, log and termination message."""

    def __init__(
        self,
        folder: Path,
        endpoint: str,
        fields: dict[str, Any],
        pod: str = "chat-engine-0",
        token: str | None = None,
        max_file_bytes: int | None = None,
        **env: str,
    ) -> None:
        """Write the config and start."""
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.log = folder / "log"
        self.termination = folder / "termination-log"
        self.termination.write_text("")
        config = engine_config.write(folder / "engine.yaml", **fields)
        given = env
        env = {name: value for name, value in os.environ.items() if "HF_" not in name}
        env |= {
            "HF_ENDPOINT": endpoint,
            "MODELSCOPE_ENDPOINT": endpoint,
            "POD_NAME": pod,
            "PYTHONPATH": str(SERVER),
            "NO_PROXY": "127.0.0.1,127.0.0.2",
            **given,
        }
        if token is not None:
            env["RWKV_MODEL_TOKEN"] = token
        command = [sys.executable, "-m", "rwkv_server", "fetch", f"--config={config}"]
        command += [f"--termination-log={self.termination}", f"--port={self.port}"]

        def limit() -> None:
            if max_file_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))

        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=env, stdout=log, stderr=log, preexec_fn=limit
            )

    def wait(self, timeout_s: float = 60) -> int:
        """The exit code."""
        return self.process.wait(timeout_s)

    def progress(self) -> dict[str, Any] | None:
        """What /progress says, or None while nobody answers."""
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.port}/progress", trust_env=False)
        except httpx.HTTPError:
            return None
        found: dict[str, Any] = answer.json()
        return found

    def wait_for(self, phase: str, about: str = "", timeout_s: float = 60) -> dict[str, Any]:
        """The first progress in this phase whose message holds `about`."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.process.poll() is None:
            found = self.progress()
            if found and found["phase"] == phase and about in found["message"]:
                return found
            time.sleep(0.01)
        raise AssertionError(f"never {phase}: {self.process.poll()}\n{self.log.read_text()}")

    def last_words(self) -> dict[str, Any]:
        """The termination message."""
        words: dict[str, Any] = json.loads(self.termination.read_text())
        return words

    def everything_said(self) -> str:
        """Log and termination message."""
        return self.log.read_text() + self.termination.read_text()

    def stop(self) -> None:
        """Kill it if it still runs."""
        self.process.kill()
        self.process.wait()

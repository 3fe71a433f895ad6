"""What the agent says to a running HAProxy, over its two Unix sockets.

The stats socket belongs to the current worker and knows maps and environment; the master's socket
starts new workers. Nothing here decides when to speak.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rwkv_operator.manifests import haproxy

ANSWER_SECONDS: Final = 10.0
RELOAD_SECONDS: Final = 60.0
LINES_AT_ONCE: Final = 200


class HAProxyError(Exception):
    """HAProxy can't be reached or doesn't do what it was asked."""


class ConfigRefused(HAProxyError):
    """The master has refused a config; the old workers go on."""


class HAProxy:
    """One HAProxy in master-worker mode."""

    def __init__(self, stats: Path, master: Path) -> None:
        """Keep the paths of the worker's and of the master's socket."""
        self.stats = stats
        self.master = master

    def running_config(self) -> str:
        """Hash of the config that the current worker runs."""
        answer = ask(self.stats, f"show env {haproxy.CONFIG_HASH_VARIABLE}", ANSWER_SECONDS)
        name, _, value = answer.strip().partition("=")
        if name != haproxy.CONFIG_HASH_VARIABLE:
            raise HAProxyError("HAProxy runs a config without a hash")
        return value

    def reload(self) -> None:
        """Start workers with the config on disk; returns once they have taken over.

        Raises:
            ConfigRefused: with HAProxy's own reason.
        """
        answer = ask(self.master, "reload", RELOAD_SECONDS)
        if not answer.startswith("Success=1"):
            raise ConfigRefused(_first_alert(answer))

    def replace_map(self, name: Path, entries: Mapping[str, str]) -> None:
        """Put other entries in force at once, all of them in one step."""
        answer = ask(self.stats, f"prepare map {name}", ANSWER_SECONDS)
        version = re.search(r"New version created: (\d+)", answer)
        if version is None:
            raise HAProxyError(f"HAProxy prepares no map: {answer.strip() or 'no answer'}")
        lines = [f"{key} {value}" for key, value in sorted(entries.items())]
        for start in range(0, len(lines), LINES_AT_ONCE):
            payload = "\n".join(lines[start : start + LINES_AT_ONCE])
            self._do(f"add map @{version[1]} {name} <<\n{payload}\n")
        self._do(f"commit map @{version[1]} {name}")

    def _do(self, command: str) -> None:
        answer = ask(self.stats, command, ANSWER_SECONDS).strip()
        if answer:
            # Not the command: its payload has the hashes of keys.
            raise HAProxyError(f"HAProxy refused `{' '.join(command.split()[:2])}`: {answer}")


def ask(path: Path, command: str, seconds: float) -> str:
    """Send one command and read until HAProxy hangs up."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(str(path))
            connection.sendall(f"{command}\n".encode())
            # The master's socket stays open for more until it hears that there is none.
            connection.shutdown(socket.SHUT_WR)
            chunks = []
            while chunk := connection.recv(65536):
                chunks.append(chunk)
    except OSError as error:
        raise HAProxyError(f"HAProxy does not answer on {path.name}: {error}") from error
    return b"".join(chunks).decode(errors="replace")


def _first_alert(answer: str) -> str:
    for line in answer.splitlines():
        if "[ALERT]" in line:
            return re.sub(r"^\[ALERT\]\s*\(\d+\) : ", "", line).strip()
    return "HAProxy gives no reason"

"""Run the programs that make images: output to a log, one progress line a step for people.

Used by `base.py`, `build.py` and `smoke.py`. Nothing here may know what an image holds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


class CommandFailed(Exception):
    """A program ended with an error; the text names the step, its log and the log's last lines."""


@dataclass(frozen=True)
class Progress:
    """Prints lines with the time since it was made, on stderr: stdout may carry an archive."""

    started: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Print one line."""
        elapsed = time.monotonic() - self.started
        print(f"[{elapsed:6.1f} s] images: {text}", file=sys.stderr, flush=True)


def run_logged(
    step: str,
    command: Sequence[str],
    log: Path,
    env: dict[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Run `command` with its output in `log`; raises CommandFailed with the log's tail."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w") as out,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=os.environ | (env or {}),
        ) as process,
    ):
        for line in process.stdout or ():
            out.write(line)
            if on_line:
                on_line(line.rstrip())
    if code := process.returncode:
        tail = "\n".join(log.read_text().splitlines()[-25:])
        raise CommandFailed(f"{step} failed with exit code {code}; log: {log}\n{tail}")


def output_of(command: Sequence[str], timeout: float | None = None) -> str | None:
    """Standard output of `command`, or None when it is missing, fails or is too slow."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None

"""The machine that readers look at: commands, files and installed packages, behind one small door.

Readers get a `Machine` as an argument, so that a recorded one can stand in for hardware that isn't
there. What can't be read is an `Unreadable` with the reason; deciding what that means is up to the
rules.
"""

from __future__ import annotations

import glob
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Protocol

PYTHON = "python"  # stands for the engine's own interpreter in a command
_TIMEOUT_S = 300.0
_MAX_CHARS = 1 << 20


class Unreadable(Exception):
    """Something a reader wanted isn't there or doesn't answer; the text says what."""


@dataclass(frozen=True)
class Reading:
    """One look at one fact in one place; without a value, `problem` says why."""

    source: str
    value: str | None
    problem: str = ""


class Machine(Protocol):
    """What readers may ask."""

    @property
    def architecture(self) -> str:
        """The kernel's name of the processor: x86_64, aarch64 and so on."""

    def run(self, *command: str) -> str:
        """What a program prints; Unreadable if it is missing or fails."""

    def read(self, path: str) -> str:
        """A small text file; Unreadable if it isn't there."""

    def find(self, pattern: str) -> list[str]:
        """Paths that match a glob pattern, sorted."""

    def variable(self, name: str) -> str | None:
        """An environment variable."""

    def version(self, distribution: str) -> str | None:
        """The version of an installed Python distribution, or None."""

    def package_folder(self, package: str) -> str:
        """Where a Python package lies, found without importing it; Unreadable if nowhere."""


class LocalMachine:
    """The container that this process runs in; it doesn't change, so answers are kept."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._answers: dict[tuple[str, ...], str | Unreadable] = {}

    @property
    def architecture(self) -> str:
        """As `uname -m`."""
        return platform.machine()

    def run(self, *command: str) -> str:
        """Run a program without a shell, once; `python` is our own interpreter."""
        if command not in self._answers:
            self._answers[command] = _run(command)
        answer = self._answers[command]
        if isinstance(answer, Unreadable):
            raise answer
        return answer

    def read(self, path: str) -> str:
        """Read as UTF-8; strange bytes are replaced."""
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read(_MAX_CHARS)
        except OSError as error:
            raise Unreadable((error.strerror or "unreadable").lower()) from None

    def find(self, pattern: str) -> list[str]:
        """Links are followed, hidden files left out."""
        return sorted(glob.glob(pattern))

    def variable(self, name: str) -> str | None:
        """From this process's environment."""
        return os.environ.get(name)

    def version(self, distribution: str) -> str | None:
        """From the distribution's metadata."""
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            return None

    def package_folder(self, package: str) -> str:
        """The folder of a top-level package."""
        spec = util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise Unreadable(f"the Python package {package} is not installed")
        return str(Path(spec.submodule_search_locations[0]))


def look(source: str, ask: Callable[[], str | None]) -> Reading:
    """A reading of what `ask` returns; None and Unreadable become its problem."""
    try:
        value = ask()
    except Unreadable as error:
        return Reading(source, None, str(error))
    if value is None or not value.strip():
        return Reading(source, None, "the answer doesn't hold it")
    return Reading(source, value.strip())


def _run(command: tuple[str, ...]) -> str | Unreadable:
    """What a program prints, or why it doesn't: some take seconds for either."""
    program, *arguments = command
    try:
        done = subprocess.run(
            [sys.executable if program == PYTHON else program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return Unreadable(f"{program} is not installed")
    except subprocess.TimeoutExpired:
        return Unreadable(f"no answer in {_TIMEOUT_S:.0f} s")
    except OSError as error:
        return Unreadable(f"{program} can't be run: {error.strerror}")
    if done.returncode:
        return Unreadable(_last_line(done.stderr or done.stdout))
    return done.stdout[:_MAX_CHARS]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"

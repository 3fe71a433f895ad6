"""A machine on paper: answers of commands, files and packages from one YAML file."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rwkv_server.preflight.machine import Unreadable


@dataclass
class PaperMachine:
    """Stands in for `machine.LocalMachine`; what isn't listed isn't there."""

    architecture: str = "x86_64"
    variables: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    package_folders: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> PaperMachine:
        values: dict[str, Any] = yaml.safe_load(path.read_text())
        return cls(**values)

    def run(self, *command: str) -> str:
        text = self.commands.get(" ".join(command))
        if text is None:
            raise Unreadable(f"{command[0]} is not installed")
        if text.startswith("!"):
            raise Unreadable(text[1:])
        return text

    def read(self, path: str) -> str:
        if path not in self.files:
            raise Unreadable("no such file or directory")
        return self.files[path]

    def find(self, pattern: str) -> list[str]:
        return sorted(path for path in self.files if fnmatch.fnmatch(path, pattern))

    def variable(self, name: str) -> str | None:
        return self.variables.get(name)

    def version(self, distribution: str) -> str | None:
        return self.packages.get(distribution)

    def package_folder(self, package: str) -> str:
        if package not in self.package_folders:
            raise Unreadable(f"the Python package {package} is not installed")
        return self.package_folders[package]

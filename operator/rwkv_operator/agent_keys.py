"""From a mounted Secret to HAProxy's map: the SHA-256 of each API key and the tenant it stands for.

A key itself leaves this module in no form: not in the map, not in an error, not in a log.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
API_KEY: Final = re.compile(rb"[\x21-\x7e]{1,1024}")
"""What fits into an Authorization header after `Bearer`, and has no space."""


@dataclass(frozen=True)
class Keys:
    """The keys that are in force, and what is wrong with the others.

    Attributes:
        tenants: from the SHA-256 of a key, in hex, to its tenant.
        errors: one line for each entry of the Secret that can't be used.
    """

    tenants: Mapping[str, str]
    errors: tuple[str, ...] = ()

    @property
    def map_text(self) -> str:
        """The lines of the map, always in the same order."""
        return "".join(f"{digest} {tenant}\n" for digest, tenant in sorted(self.tenants.items()))

    @property
    def digest(self) -> str:
        """By which two routers can be compared."""
        return hashlib.sha256(self.map_text.encode()).hexdigest()


def read_keys(directory: Path) -> Keys:
    """Read a mounted Secret: a file is a tenant, its content an API key."""
    entries = {}
    if directory.is_dir():
        for path in sorted(directory.iterdir()):
            # The kubelet's own links; every other name is the user's.
            if not path.name.startswith("..") and path.is_file():
                entries[path.name] = path.read_bytes()
    return parse_keys(entries)


def parse_keys(entries: Mapping[str, bytes]) -> Keys:
    """Take what is usable; two tenants with the same key are both left out."""
    errors = [
        f"{name}: {problem}"
        for name, value in entries.items()
        if (problem := _problem(name, value))
    ]
    usable = {name: value for name, value in entries.items() if _problem(name, value) is None}
    owners: dict[str, list[str]] = {}
    for name, value in usable.items():
        owners.setdefault(hashlib.sha256(value).hexdigest(), []).append(name)
    for shared in owners.values():
        if len(shared) > 1:
            errors.append(f"{', '.join(shared)}: the same API key for several tenants")
    if not entries:
        errors.append("the Secret is missing or empty: nobody is let in")
    tenants = {digest: names[0] for digest, names in owners.items() if len(names) == 1}
    return Keys(tenants, tuple(errors))


def _problem(name: str, value: bytes) -> str | None:
    if TENANT.fullmatch(name) is None:
        return "a tenant's name is 1 to 63 letters, digits, _, . or -, the first no sign"
    if not value:
        return "the API key is empty"
    if value.endswith(b"\n"):
        return "the API key ends with a line break; write it without one (printf, not echo)"
    if API_KEY.fullmatch(value) is None:
        return "an API key is at most 1024 printable ASCII characters without spaces"
    return None


def write_map(path: Path, text: str) -> None:
    """Replace the map in one step, readable by the pod's group."""
    if path.is_file() and path.read_text() == text:
        return
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.chmod(0o640)
    os.replace(temporary, path)

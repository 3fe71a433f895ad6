"""Digests that came with a model's files, from a download or a conversion, by file name."""

from __future__ import annotations

import re
from pathlib import Path

from rwkv_server.errors import ModelInvalid
from rwkv_server.preflight import json_file

MANIFEST = "manifest.json"
SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *]([^/\n]+)")


def read_digests(folder: Path) -> dict[str, str]:
    """File name → SHA-256 in hex, of `manifest.json` and `SHA256SUMS`; empty without either.

    Raises:
        ModelInvalid: one of them is there and can't be read.
    """
    return {**_of_manifest(folder / MANIFEST), **_of_sums(folder / SUMS)}


def _of_manifest(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    files = json_file.read_object(path).get("files")
    found = {}
    for name, facts in files.items() if isinstance(files, dict) else ():
        digest = facts.get("digest") if isinstance(facts, dict) else None
        if isinstance(digest, str) and digest.startswith("sha256:"):
            found[name] = digest.removeprefix("sha256:").lower()
    return found


def _of_sums(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ModelInvalid(f"{path} can't be read") from None
    return {name: digest for digest, name in _LINE.findall(text)}

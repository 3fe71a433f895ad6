"""Parses the `key=value` files that Ascend's installers leave behind."""

from __future__ import annotations


def parse(text: str) -> dict[str, str]:
    """Keys in lower case; the first of equal keys counts, lines without `=` and comments don't."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith("#"):
            found.setdefault(key.strip().lower(), value.strip())
    return found

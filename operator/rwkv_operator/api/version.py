"""Versions of drivers and chips as vendors write them, made comparable.

`580.65.06`, `25.0.rc1`, `7.5`: numbers by value, a release candidate before its release. Python
packages have rules of their own, which the server knows.
"""

from __future__ import annotations

import re
from typing import Final

Key = tuple[tuple[int, int], ...]

_PART: Final = re.compile(r"(?:(rc)?([0-9]{1,9}))", re.IGNORECASE)
_LENGTH: Final = 8
_RELEASE: Final = (1, 0)


def parse_version(text: str) -> Key | None:
    """A key to compare by; None where the text isn't such a version."""
    parts = re.split(r"[.\-]", text.strip().removeprefix("v").removeprefix("V"))
    matches = [_PART.fullmatch(part) for part in parts]
    if len(parts) > _LENGTH or not all(matches):
        return None
    key = [(0 if match[1] else 1, int(match[2])) for match in matches if match]
    return tuple(key + [_RELEASE] * (_LENGTH - len(key)))

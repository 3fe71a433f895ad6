"""Compares versions: Python packages by PEP 440, vendors' dotted numbers by their parts. Pure."""

from __future__ import annotations

import re
from itertools import zip_longest

from packaging.version import InvalidVersion, Version

_DOTTED = re.compile(r"\d{1,9}(\.(rc)?\d{1,9})*", re.IGNORECASE)
_PART = re.compile(r"(rc)?(\d+)", re.IGNORECASE)
_Key = tuple[int, int]
_END: _Key = (1, 0)


def same_public(found: str, wanted: str) -> bool:
    """Whether two package versions have equal public parts.

    `.postN` counts, a local part such as `+cpu` doesn't: builders add it freely. Texts that aren't
    versions must be equal.
    """
    try:
        # Version of the public part again: 0.32 and 0.32.0 are one version, but two texts.
        return Version(Version(found).public) == Version(Version(wanted).public)
    except InvalidVersion:
        return found == wanted


def parse_dotted(text: str) -> list[_Key] | None:
    """A sort key for `580.95.05`, `8.5.0` or `25.0.rc1.1`; None for anything else."""
    if not _DOTTED.fullmatch(text.strip()):
        return None
    parts = _PART.findall(text)
    return [(0 if rc else 1, int(number)) for rc, number in parts]


def compare_dotted(left: str, right: str) -> int | None:
    """-1, 0 or 1; missing parts count as 0, `rcN` is before any number; None if not comparable."""
    first, second = parse_dotted(left), parse_dotted(right)
    if first is None or second is None:
        return None
    for one, other in zip_longest(first, second, fillvalue=_END):
        if one != other:
            return -1 if one < other else 1
    return 0

"""Kubernetes quantities in all their notations, as numbers that can be compared. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

_NUMBER: Final = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_QUANTITY: Final = re.compile(rf"({_NUMBER})(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|)")
_UNITS: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{unit: Decimal(1000) ** (i + 1) for i, unit in enumerate("kMGTPE")},
    **{f"{unit}i": Decimal(1024) ** (i + 1) for i, unit in enumerate("KMGTPE")},
}


def amount(text: object) -> Decimal | None:
    """Value of a quantity; None where it isn't one."""
    match = _QUANTITY.fullmatch(str(text))
    return Decimal(match[1]) * _UNITS[match[2]] if match else None


def at_most(text: str, limit: str) -> str:
    """The smaller of two quantities as it is written; the first where one can't be read."""
    ours, most = amount(text), amount(limit)
    return limit if ours is not None and most is not None and most < ours else text

"""Typed reading of the fields of a custom resource, with the field's path in every error.

The API server has checked the schema already; this is the second look for objects that were
stored under another version of it. No knowledge of any particular field lives here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from rwkv_operator.errors import InvalidSpec

_DURATION: Final = re.compile(r"([1-9][0-9]{0,4})(s|m|h)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}

_QUANTITY: Final = re.compile(r"([1-9][0-9]{0,8})(Ki|Mi|Gi|Ti|k|M|G|T|)")
_AMOUNT: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(Ki|Mi|Gi|Ti|k|M|G|T|)")
_BYTES: Final = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def parse_duration(field: str, text: str) -> int:
    """Seconds of a duration such as `30s`, `5m` or `1h`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidSpec(field, text, "a whole number of s, m or h, such as 30s")
    return int(match[1]) * _SECONDS[match[2]]


def parse_quantity(field: str, text: str) -> int:
    """Bytes of a quantity such as `512Mi` or `10G`."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise InvalidSpec(field, text, "a whole number of bytes with a unit, such as 10Gi")
    return int(match[1]) * _BYTES[match[2]]


def add_bytes(quantity: str, more: int) -> str:
    """A quantity of memory and so many bytes more; one in other units stays as it is."""
    match = _AMOUNT.fullmatch(quantity)
    if match is None:
        return quantity
    total = int(Decimal(match[1]) * _BYTES[match[2]]) + more
    unit = next(unit for unit in ("Gi", "Mi", "Ki", "") if total % _BYTES[unit] == 0)
    return f"{total // _BYTES[unit]}{unit}"


@dataclass(frozen=True)
class Fields:
    """One object of a custom resource, and where in the resource it is."""

    values: Mapping[str, Any]
    path: str

    @classmethod
    def of(cls, value: object, path: str) -> Fields:
        """Read a value as an object; absent counts as empty."""
        if value is None:
            return cls({}, path)
        if not isinstance(value, Mapping):
            raise InvalidSpec(path, value, "an object")
        return cls(value, path)

    def at(self, key: str) -> str:
        """Path of one field."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(key) is not None

    def child(self, key: str) -> Fields:
        """The object under a field."""
        return Fields.of(self.values.get(key), self.at(key))

    def only_key(self, keys: tuple[str, ...]) -> str:
        """The one key of a union that is set."""
        found = [key for key in keys if self.has(key)]
        if len(found) != 1:
            raise InvalidSpec(
                self.path, " and ".join(found) or None, f"exactly one of {', '.join(keys)}"
            )
        return found[0]

    def text(self, key: str, default: str | None = None) -> str:
        """A string that isn't empty."""
        value = self.values.get(key, default)
        if not isinstance(value, str) or not value:
            raise InvalidSpec(self.at(key), value, "a text")
        return value

    def optional_text(self, key: str) -> str | None:
        """A string, or None where the field isn't set."""
        return self.text(key) if self.has(key) else None

    def choice(self, key: str, allowed: tuple[str, ...], default: str) -> str:
        """One of a few words."""
        value = self.text(key, default)
        if value not in allowed:
            raise InvalidSpec(self.at(key), value, f"one of {', '.join(allowed)}")
        return value

    def flag(self, key: str) -> bool:
        """True or False; False where the field isn't set."""
        value = self.values.get(key) or False
        if not isinstance(value, bool):
            raise InvalidSpec(self.at(key), value, "true or false")
        return value

    def integer(self, key: str, default: int | None, low: int, high: int) -> int:
        """A whole number within bounds, both included."""
        value = self.values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise InvalidSpec(self.at(key), value, f"a whole number from {low} to {high}")
        return value

    def seconds(self, key: str, default: str) -> int:
        """A duration, in seconds."""
        return parse_duration(self.at(key), self.text(key, default))

    def quantity(self, key: str, default: str) -> str:
        """A quantity of bytes as it was written, checked."""
        value = self.text(key, default)
        parse_quantity(self.at(key), value)
        return value

    def size(self, key: str, default: str) -> int:
        """A quantity of bytes, as a number."""
        return parse_quantity(self.at(key), self.text(key, default))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        values = self._items(key)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise InvalidSpec(f"{self.at(key)}[{index}]", value, "a text")
        return tuple(values)

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        values = self._items(key)
        for index, value in enumerate(values):
            if not isinstance(value, int) or isinstance(value, bool):
                raise InvalidSpec(f"{self.at(key)}[{index}]", value, "a whole number")
        return tuple(values)

    def text_map(self, key: str) -> Mapping[str, str]:
        """An object whose values are strings."""
        child = self.child(key)
        for name, value in child.values.items():
            if not isinstance(value, str):
                raise InvalidSpec(child.at(name), value, "a text")
        return dict(child.values)

    def raw_map(self, key: str) -> Mapping[str, Any]:
        """A copy of an object that goes into a manifest, without what is empty."""
        return {name: _filled(value) for name, value in self.child(key).values.items()}

    def raw_list(self, key: str) -> tuple[Mapping[str, Any], ...]:
        """A copy of a list of objects that goes into a manifest, without what is empty in them."""
        values = self._items(key)
        for index, value in enumerate(values):
            if not isinstance(value, Mapping):
                raise InvalidSpec(f"{self.at(key)}[{index}]", value, "an object")
        return tuple(_filled(value) for value in values)

    def items(self, key: str) -> tuple[Fields, ...]:
        """A list of objects, each readable by field."""
        return tuple(
            Fields.of(value, f"{self.at(key)}[{index}]")
            for index, value in enumerate(self._items(key))
        )

    def _items(self, key: str) -> list[Any]:
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise InvalidSpec(self.at(key), value, "a list")
        return list(value)


def _filled(value: Any) -> Any:
    """A copy without empty lists, texts and label maps: in Kubernetes they mean absence.

    The API server drops them, so an object that has them is never seen as it was sent. Other empty
    objects stay: an empty selector selects everything.
    """
    if isinstance(value, Mapping):
        return {
            key: _filled(child)
            for key, child in value.items()
            if child not in ([], "", None) and not (key == "matchLabels" and child == {})
        }
    if isinstance(value, list | tuple):
        return [_filled(item) for item in value]
    return value

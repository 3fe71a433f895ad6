"""A preflight's refusal as it is kept on the engines' StatefulSet, over restarts of the operator.

Only reading and writing of the annotation lives here; when a refusal is made and how long it holds
is decided in `decide/`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rwkv_operator import names


@dataclass(frozen=True)
class Refusal:
    """Why there are no engine pods although the deployment wants some.

    Attributes:
        key: hash of everything that the preflight's verdict depends on.
        pod: the engine that refused.
        node: where it ran.
        found: what was found, by requirement.
        wanted: what the stack wants.
    """

    key: str
    pod: str
    node: str
    message: str
    found: str
    wanted: str

    def text(self) -> str:
        """One line for a condition."""
        where = f" on node {self.node}" if self.node else ""
        return f"{self.pod}{where}: {self.message} (found {self.found}; wanted {self.wanted})"


def parse_refusal(statefulset: Mapping[str, Any] | None) -> Refusal | None:
    """The refusal on a StatefulSet; None where there is none or it can't be read."""
    annotations = (statefulset or {}).get("metadata", {}).get("annotations") or {}
    try:
        value = json.loads(annotations.get(names.ANNOTATION_REFUSAL) or "null")
        return None if value is None else Refusal(**{key: str(value[key]) for key in _FIELDS})
    except (ValueError, TypeError, KeyError):
        return None


def to_annotation(refusal: Refusal) -> str:
    """The annotation's text."""
    return json.dumps(dataclasses.asdict(refusal), ensure_ascii=False, sort_keys=True)


_FIELDS = tuple(field.name for field in dataclasses.fields(Refusal))

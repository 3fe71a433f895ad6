"""What to write so that the children become what they should be; nothing where they already are.

Every pass compares the whole wanted set with the live one. A write is only planned for an object
that is missing, is ours and differs, or is ours and no longer wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rwkv_operator.api.observed import Foreign
from rwkv_operator.decide.compare import differences

Key = tuple[str, str]
"""Kind and name of a child."""

_WORKLOADS: Final = ("StatefulSet", "Deployment")


@dataclass(frozen=True)
class Apply:
    """Make an object, or set the fields in which it differs.

    Attributes:
        uid: of the live object; None where there is none.
        paths: the fields that differ.
    """

    desired: Mapping[str, Any]
    uid: str | None = None
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Delete:
    """Remove an object of ours that is no longer wanted."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True)
class Plan:
    """What to do, in order.

    Attributes:
        secrets: make the Secrets first, as a workload that may need them is written.
    """

    applies: tuple[Apply, ...] = ()
    deletes: tuple[Delete, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    secrets: bool = False


def decide_plan(
    desired: Iterable[Mapping[str, Any]], live: Mapping[Key, Mapping[str, Any]], owner_uid: str
) -> Plan:
    """Compare the wanted children with the live ones.

    Args:
        desired: the manifests, in the order in which they are to be applied.
        live: every object that has a child's name or our label, by kind and name.
        owner_uid: uid of the RWKVDeployment.
    """
    applies: list[Apply] = []
    foreign: list[Foreign] = []
    wanted: set[Key] = set()
    for manifest in desired:
        key = key_of(manifest)
        wanted.add(key)
        found = live.get(key)
        if found is None:
            applies.append(Apply(manifest))
        elif not is_owned(found, owner_uid):
            foreign.append(Foreign(*key, owner=owner_text(found)))
        elif not _is_going(found):
            paths = differences(manifest, found)
            if paths:
                applies.append(Apply(manifest, found["metadata"]["uid"], paths))
    if any(other.kind == "ConfigMap" for other in foreign):
        # New pods would run with a stranger's configuration.
        applies = [step for step in applies if step.uid or step.desired["kind"] not in _WORKLOADS]
    return Plan(
        applies=tuple(applies),
        deletes=tuple(
            Delete(*key, uid=found["metadata"]["uid"])
            for key, found in sorted(live.items())
            if key not in wanted and is_owned(found, owner_uid) and not _is_going(found)
        ),
        foreign=tuple(foreign),
        secrets=any(apply.desired["kind"] in _WORKLOADS for apply in applies),
    )


def key_of(obj: Mapping[str, Any]) -> Key:
    """Kind and name of an object."""
    return obj["kind"], obj["metadata"]["name"]


def is_owned(obj: Mapping[str, Any], owner_uid: str) -> bool:
    """Whether the RWKVDeployment with that uid controls the object."""
    return any(
        owner.get("uid") == owner_uid and owner.get("controller")
        for owner in obj["metadata"].get("ownerReferences") or ()
    )


def owner_text(obj: Mapping[str, Any]) -> str:
    """Who controls an object, or that nobody does."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{owner['kind']} {owner['name']}"
    return "nobody (it has no controller)"


def _is_going(obj: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in obj["metadata"]

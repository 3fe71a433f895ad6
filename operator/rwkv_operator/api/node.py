"""A node as a value: only what decides whether an engine may run there.

Two nodes that are equal here are equal to every decision, so a heartbeat that changes nothing of
it wakes nobody. Only reading lives here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_PASSING_TAINTS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints of nodes that are cordoned, full or not ready: they pass, the scheduler tells of them."""

_SYSTEM: Final = ("architecture", "bootID", "kernelVersion", "machineID", "systemUUID")


@dataclass(frozen=True)
class Node:
    """One node.

    Attributes:
        devices: allocatable amounts of extended resources, such as `nvidia.com/gpu`.
        taints: those that stay; key, value and effect of each.
        system: what changes when the machine is exchanged, upgraded or booted anew.
    """

    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()
    system: tuple[str, ...] = ()


def parse_node(obj: Mapping[str, Any]) -> Node:
    """Read a node as the API server shows it."""
    metadata = obj["metadata"]
    status = obj.get("status") or {}
    info = status.get("nodeInfo") or {}
    return Node(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        labels=dict(metadata.get("labels") or {}),
        devices=_devices(status.get("allocatable") or {}),
        taints=tuple(
            (taint["key"], taint.get("value") or "", taint["effect"])
            for taint in (obj.get("spec") or {}).get("taints") or ()
            if not taint["key"].startswith(_PASSING_TAINTS)
        ),
        system=tuple(str(info.get(key, "")) for key in _SYSTEM),
    )


def _devices(allocatable: Mapping[str, Any]) -> dict[str, int]:
    # Devices are whole; what has no domain or isn't a number is memory and the like.
    return {
        name: int(amount)
        for name, amount in allocatable.items()
        if "/" in name and str(amount).isdecimal()
    }

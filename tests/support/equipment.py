"""Devices and labels on a node, as a device plugin and a discovery would bring them.

A resource that is patched onto a node's status stays there: the kubelet keeps what it doesn't know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from kube import Kube


def label(kube: Kube, node: str, labels: Mapping[str, str | None]) -> None:
    """Set labels; None removes one."""
    text = json.dumps({"metadata": {"labels": labels}})
    kube.run("patch", "node", node, "--type=merge", "-p", text)


def equip(kube: Kube, node: str, devices: Mapping[str, int | None]) -> None:
    """Set how many devices of each resource there are; None removes the resource."""
    amounts = {name: None if n is None else str(n) for name, n in devices.items()}
    text = json.dumps({"status": {"allocatable": amounts, "capacity": amounts}})
    kube.run("patch", "node", node, "--subresource=status", "--type=merge", "-p", text)

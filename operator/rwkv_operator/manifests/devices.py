"""What an engine pod needs besides the resource to get at its devices, and to nodes that fit.

Devices themselves come from the vendor's device plugin. The variables by which it names them
(ASCEND_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES) are never set here: what a pod's spec says would
win over what the plugin says.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from rwkv_operator.api import parsing, spec, stack

SHARED_MEMORY_PATH: Final = "/dev/shm"

HOST_DRIVER: Final = (
    ("ascend-dcmi", "/usr/local/dcmi", "Directory"),
    ("ascend-npu-smi", "/usr/local/bin/npu-smi", "File"),
    ("ascend-driver-lib", "/usr/local/Ascend/driver/lib64", "Directory"),
    ("ascend-driver-version", "/usr/local/Ascend/driver/version.info", "File"),
    ("ascend-install-info", "/etc/ascend_install.info", "File"),
)
"""Parts of the host's Ascend driver: name of the volume, path on the host and in the pod, kind."""

HOST_NETWORK: Final = ("ascend-hccn", "/etc/hccn.conf", "File")
"""How the cards of one host reach each other; only where a replica has several."""


def build_volumes(
    hardware: spec.Hardware, devices: stack.Devices, hot_bytes: int
) -> list[dict[str, Any]]:
    """Shared memory with room for states, and the host's driver where no runtime mounts it."""
    size = parsing.add_bytes(devices.shared_memory, hot_bytes)
    return [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}},
        *(
            {"name": name, "hostPath": {"path": path, "type": kind}}
            for name, path, kind in _host_paths(hardware, devices)
        ),
    ]


def build_mounts(hardware: spec.Hardware, devices: stack.Devices) -> list[dict[str, Any]]:
    """Where those volumes are in the container."""
    return [
        {"name": "shm", "mountPath": SHARED_MEMORY_PATH},
        *(
            {"name": name, "mountPath": path, "readOnly": True}
            for name, path, _ in _host_paths(hardware, devices)
        ),
    ]


def build_groups(devices: stack.Devices) -> dict[str, Any]:
    """Further fields of the pod's security context: who owns the device files on the host."""
    return {"supplementalGroups": list(devices.groups)} if devices.groups else {}


def build_affinity(
    dep: spec.Deployment, requirements: tuple[stack.NodeRequirement, ...]
) -> dict[str, Any]:
    """The user's affinity, and nodes with the labels that the stack asks for.

    Lower bounds of versions can't be said here; the preflight finds a pod that landed on a node
    below them. Where the labels may be missing and the user goes on anyway, none is asked for.
    """
    affinity = copy.deepcopy(dict(dep.spec.engine.pod_template.affinity))
    expressions = [expression for r in requirements for expression in _expressions(r)]
    if not expressions or dep.spec.hardware.on_unknown == "Proceed":
        return affinity
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    node = dict(affinity.get("nodeAffinity") or {})
    terms = (node.get(field) or {}).get("nodeSelectorTerms") or [{}]
    # Terms are alternatives: every one of them has to keep the stack's labels.
    node[field] = {"nodeSelectorTerms": [_extended(term, expressions) for term in terms]}
    return {**affinity, "nodeAffinity": node}


def _host_paths(
    hardware: spec.Hardware, devices: stack.Devices
) -> tuple[tuple[str, str, str], ...]:
    if not devices.host_driver:
        return ()
    return (*HOST_DRIVER, HOST_NETWORK) if hardware.devices_per_replica > 1 else HOST_DRIVER


def _expressions(requirement: stack.NodeRequirement) -> list[dict[str, Any]]:
    if requirement.allowed and len(requirement.labels) == 1:
        (label,) = requirement.labels
        return [{"key": label, "operator": "In", "values": list(requirement.allowed)}]
    return [{"key": label, "operator": "Exists"} for label in requirement.labels]


def _extended(term: Mapping[str, Any], expressions: list[dict[str, Any]]) -> dict[str, Any]:
    own = term.get("matchExpressions") or []
    return {**term, "matchExpressions": [*own, *copy.deepcopy(expressions)]}

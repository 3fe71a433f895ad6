"""The catalogue of stacks that an installation brings, applied when the operator starts.

What an admin has set on a stack stays: fields are never taken over by force, and evidence is only
copied where a stack has none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rwkv_operator import errors, names
from rwkv_operator.cluster.client import Cluster

_log = logging.getLogger(__name__)


def read_catalogue(folder: Path) -> list[dict[str, Any]]:
    """The stacks in the YAML files of a folder, by file name."""
    stacks = []
    for path in sorted(folder.glob("*.yaml")):
        for obj in yaml.safe_load_all(path.read_text()):
            if obj is None:
                continue
            if obj.get("kind") != names.STACK_KIND:
                raise errors.InvalidSpec(f"{path}: kind", obj.get("kind"), names.STACK_KIND)
            stacks.append(obj)
    return stacks


def apply_catalogue(cluster: Cluster, folder: Path) -> None:
    """Make the stacks that are missing and update those that differ.

    A stack that an admin has changed keeps the admin's values, and that is logged.
    """
    for stack in read_catalogue(folder):
        name = stack["metadata"]["name"]
        try:
            apply_stack(cluster, stack)
        except errors.ClusterError as error:
            if error.status not in (409, 422):
                raise
            _log.warning("RWKVHardwareStack %s stays as it is: %s", name, error)


def apply_stack(cluster: Cluster, stack: Mapping[str, Any]) -> None:
    """Apply one stack; its evidence only where the live one has none."""
    spec = {key: value for key, value in stack["spec"].items() if key != "evidence"}
    bare = {**stack, "spec": spec}
    live = cluster.get(names.STACK_KIND, None, stack["metadata"]["name"])
    if live is None:
        live = cluster.make(bare)
    elif any(live["spec"].get(key) != value for key, value in spec.items()):
        # Only then: an apply that changes nothing is a write, too.
        live = cluster.apply(bare, live["metadata"]["uid"], force=False)
    evidence = stack["spec"].get("evidence")
    if evidence and not live["spec"].get("evidence"):
        cluster.apply_evidence(bare, evidence)

"""The catalogue of stacks that an installation brings, applied when the operator starts.

What an admin has set on a stack stays: fields are never taken over by force, and evidence is only
copied where a stack has none. It lies beside the stack's file, as the acceptance run wrote it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from rwkv_operator import errors, names
from rwkv_operator.cluster.client import Cluster

_log = logging.getLogger(__name__)

EVIDENCE_SUFFIX: Final = ".evidence.json"
ACCEPTED: Final = "ACCEPTANCE_OK"


def read_catalogue(folder: Path) -> list[dict[str, Any]]:
    """The stacks in the YAML files of a folder, by file name."""
    stacks = []
    for path in sorted(folder.glob("*.yaml")):
        for obj in yaml.safe_load_all(path.read_text()):
            if obj is None:
                continue
            if obj.get("kind") != names.STACK_KIND:
                raise errors.InvalidSpec(f"{path}: kind", obj.get("kind"), names.STACK_KIND)
            stacks.append(
                with_evidence(obj, folder / f"{obj['metadata']['name']}{EVIDENCE_SUFFIX}")
            )
    return stacks


def with_evidence(stack: dict[str, Any], file: Path) -> dict[str, Any]:
    """The stack with the evidence in a file, if that is about this very combination."""
    if not file.is_file():
        return stack
    raw = file.read_bytes()
    problem = find_problem(stack, raw)
    if problem is not None:
        _log.warning("%s isn't evidence for stack %s: %s", file, stack["metadata"]["name"], problem)
        return stack
    evidence = {
        "status": "Validated",
        "report": f"{file.name} of the catalogue",
        "sha256": hashlib.sha256(raw).hexdigest(),
    }
    return {**stack, "spec": {**stack["spec"], "evidence": evidence}}


def find_problem(stack: Mapping[str, Any], raw: bytes) -> str | None:
    """Why an acceptance run's evidence.json doesn't speak for a stack; None where it does."""
    try:
        value = json.loads(raw)
        about, result = value["stack"], value["result"]
        runtime = {key: wanted for key, wanted in about["runtime"].items() if wanted}
        name = about["name"]
    except (ValueError, TypeError, LookupError, AttributeError):
        return "it can't be read"
    if result != ACCEPTED:
        return f"its result is {result}"
    if name != stack["metadata"]["name"]:
        return f"it is about stack {name}"
    if runtime != (stack["spec"].get("runtimeRequirements") or {}):
        return "it was made for other runtimeRequirements"
    return None


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

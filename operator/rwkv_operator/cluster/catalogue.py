"""The catalogue of stacks that an installation brings, applied when the operator starts.

What an admin has set on a stack stays: fields are never taken over by force, and evidence is only
copied where a stack has none. It lies beside the stack's file, as the acceptance run wrote it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from rwkv_operator import errors, names
from rwkv_operator.api import events
from rwkv_operator.cluster.client import Cluster

_log = logging.getLogger(__name__)

EVIDENCE_SUFFIX: Final = ".evidence.json"
ACCEPTED: Final = "ACCEPTANCE_OK"
CHANGEABLE: Final = frozenset({"engineImage", "evidence"})
"""Fields of a stack's spec that the API server lets be changed."""

_SHOWN: Final = 160


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


def apply_catalogue(cluster: Cluster, folder: Path, now: str) -> None:
    """Make the stacks that are missing and update those that differ.

    A stack that an admin has changed keeps the admin's values. What can't be set is logged and
    told by an Event about the stack, once for each text.

    Args:
        cluster: the API server.
        folder: the catalogue.
        now: time in Kubernetes' format.
    """
    for stack in read_catalogue(folder):
        name = stack["metadata"]["name"]
        try:
            problem = apply_stack(cluster, stack)
        except errors.ClusterError as error:
            if error.status not in (409, 422):
                raise
            problem = f"it stays as it is: {error}"
        if problem:
            _log.warning("RWKVHardwareStack %s: %s", name, problem)
            _tell(cluster, name, problem, now)


def apply_stack(cluster: Cluster, stack: Mapping[str, Any]) -> str | None:
    """Apply one stack; its evidence only where the live one has none.

    Returns:
        What couldn't be set, and what to do about it; None where all is as in the catalogue.
    """
    spec = {key: value for key, value in stack["spec"].items() if key != "evidence"}
    bare = {**stack, "spec": spec}
    live = cluster.get(names.STACK_KIND, None, stack["metadata"]["name"])
    problem = None
    if live is None:
        live = cluster.make(bare)
    elif any(live["spec"].get(key) != value for key, value in spec.items()):
        # Only then: an apply that changes nothing is a write, too.
        try:
            live = cluster.apply(bare, live["metadata"]["uid"], force=False)
        except errors.ClusterError as error:
            fixed = find_fixed(live["spec"], spec)
            if error.status != 422 or not fixed:
                raise
            problem = f"{_describe(fixed, live['spec'], spec)}. {_set_image(cluster, bare, live)}"
    evidence = stack["spec"].get("evidence")
    if evidence and not live["spec"].get("evidence") and _same_runtime(live["spec"], spec):
        cluster.apply_evidence(bare, evidence)
    return problem


def find_fixed(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """The fields that differ and that no stack may change."""
    fields = sorted({*live, *wanted} - CHANGEABLE)
    return [field for field in fields if live.get(field) != wanted.get(field)]


def _describe(fixed: Iterable[str], live: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    told = (
        f"spec.{field} is {_short(live.get(field))}, the catalogue has {_short(wanted.get(field))}"
        for field in fixed
    )
    return (
        f"{'; '.join(told)}. It can't be changed: delete the stack and restart the operator, which "
        "makes it anew while engines run on, or apply the catalogue's under a new name"
    )


def _set_image(cluster: Cluster, bare: Mapping[str, Any], live: Mapping[str, Any]) -> str:
    """Set the image of a stack whose other fields have to stay; what became of it."""
    old, new = live["spec"]["engineImage"], bare["spec"]["engineImage"]
    if old == new:
        return f"engineImage is {new} already"
    if not _same_runtime(live["spec"], bare["spec"]):
        return f"engineImage stays {old}: {new} is made for the catalogue's runtimeRequirements"
    kept = {key: value for key, value in live["spec"].items() if key not in CHANGEABLE}
    image = {**bare, "spec": {**kept, "engineImage": new}}
    try:
        cluster.apply(image, live["metadata"]["uid"], force=False)
    except errors.Conflict as error:
        return f"engineImage stays {old}: {error}"
    return f"engineImage is set to {new} all the same"


def _same_runtime(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether image and evidence of one are good for the other."""
    return bool(live.get("runtimeRequirements") == wanted.get("runtimeRequirements"))


def _short(value: object) -> str:
    text = "absent" if value is None else json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _tell(cluster: Cluster, name: str, problem: str, now: str) -> None:
    """An Event about a stack; the same text has the same name, so that a restart adds none."""
    live = cluster.get(names.STACK_KIND, None, name)
    if live is None:
        return
    digest = hashlib.sha256(f"{live['metadata']['uid']} {problem}".encode()).hexdigest()[:10]
    note = events.Note("Warning", "CatalogueDiffers", problem)
    try:
        cluster.create(events.build_event(live, note, now, digest))
    except errors.ClusterError as error:
        # The log says the same; an Event is not worth a start that fails.
        _log.warning("event about %s not posted: %s", name, error)

"""A pod of a deployment as a value, with the reason why it doesn't run in Kubernetes' own words.

Only reading of raw objects lives here; what a reason means for a deployment is decided in
`decide/`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rwkv_operator import names

_STILL_STARTING: Final = ("ContainerCreating", "PodInitializing")
_MESSAGE_LIMIT: Final = 1024
_TOLD_AS_SAID: Final = ("RuntimeMismatch",)
"""Reasons of the server's that stand for the pod's: they tell what to do, a crash doesn't."""


@dataclass(frozen=True)
class Said:
    """What the server wrote into its termination message before it ended."""

    reason: str
    message: str
    found: str | None = None
    wanted: str | None = None

    def text(self) -> str:
        """One line of it."""
        details = ""
        if self.found is not None or self.wanted is not None:
            details = f" (found {self.found}, wanted {self.wanted})"
        return f"{self.reason}: {self.message}{details}"


@dataclass(frozen=True)
class Failure:
    """Why a pod doesn't run: the pod's own reason, and what it said itself."""

    reason: str
    message: str
    exit_code: int | None = None
    said: Said | None = None
    container: str | None = None


@dataclass(frozen=True)
class Pod:
    """One engine or router pod.

    Attributes:
        node: where it runs; empty before it is scheduled.
        revision: hash of the template that it was made from.
        instance: changes whenever a container of the pod is started anew.
        started: every container has passed its startup probe.
        fetching: the container that downloads the model runs.
    """

    name: str
    uid: str
    component: str
    revision: str
    ip: str | None
    ready: bool
    started: bool
    terminating: bool
    instance: str
    failure: Failure | None = None
    fetching: bool = False
    node: str = ""


def parse_pod(obj: Mapping[str, Any]) -> Pod:
    """Read a pod as the API server shows it."""
    metadata = obj["metadata"]
    status = obj.get("status") or {}
    labels = metadata.get("labels") or {}
    ready = _condition(status, "Ready").get("status") == "True"
    initial = status.get("initContainerStatuses") or ()
    running = [entry for entry in status.get("containerStatuses") or ()]
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        component=labels.get(names.LABEL_COMPONENT, ""),
        revision=labels.get("controller-revision-hash") or labels.get("pod-template-hash") or "",
        ip=status.get("podIP"),
        ready=ready,
        started=bool(running) and all(entry.get("started") for entry in running),
        terminating="deletionTimestamp" in metadata,
        instance="|".join(
            [metadata["uid"], *(str(e.get("containerID")) for e in (*initial, *running))]
        ),
        failure=None if ready else parse_failure(obj),
        fetching=any(
            entry["name"] == names.CONTAINER_FETCH and "running" in (entry.get("state") or {})
            for entry in initial
        ),
        node=(obj.get("spec") or {}).get("nodeName") or "",
    )


def _is_tried_again(scheduled: Mapping[str, Any]) -> bool:
    """Whether the scheduler waits for somebody, or only for its own next try after a conflict."""
    conflict = "the object has been modified" in (scheduled.get("message") or "")
    return conflict or scheduled.get("reason") == "SchedulingGated"


def parse_failure(obj: Mapping[str, Any]) -> Failure | None:
    """The first reason, in the order in which a pod starts, why it isn't running."""
    status = obj.get("status") or {}
    pod = obj["metadata"]["name"]
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False" and not _is_tried_again(scheduled):
        return Failure("FailedScheduling", f"{pod}: {clip(scheduled.get('message'))}")
    for container in _container_statuses(status):
        failure = _container_failure(pod, container)
        if failure is not None:
            return failure
    if status.get("phase") == "Failed":
        reason = status.get("reason") or "PodFailed"
        return Failure(reason, f"{pod}: {clip(status.get('message') or 'the pod has failed')}")
    return None


def parse_said(text: str | None) -> Said | None:
    """Read a termination message; None where it isn't one of our server's."""
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(value, Mapping) or not isinstance(value.get("reason"), str):
        return None
    found, wanted = value.get("found"), value.get("wanted")
    return Said(
        reason=value["reason"],
        message=clip(value.get("message")),
        found=None if found is None else clip(_fact(found)),
        wanted=None if wanted is None else clip(_fact(wanted)),
    )


def _container_statuses(status: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()


def _container_failure(pod: str, container: Mapping[str, Any]) -> Failure | None:
    state = container.get("state") or {}
    waiting = state.get("waiting") or {}
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated") or {}
    if container.get("ready") and "running" in state:
        return None
    if ended.get("exitCode"):
        return _crash(pod, container, ended)
    reason = waiting.get("reason")
    if reason is None or reason in _STILL_STARTING:
        return None
    message = waiting.get("message") or "the container can't be started"
    name = container["name"]
    return Failure(reason, f"{pod}: container {name}: {clip(message)}", container=name)


def _crash(pod: str, container: Mapping[str, Any], ended: Mapping[str, Any]) -> Failure:
    said = parse_said(ended.get("message"))
    own = ended.get("reason") or "Error"
    restarts = container.get("restartCount") or 0
    text = f"{pod}: container {container['name']} exited with code {ended['exitCode']} ({own})"
    if restarts:
        text += f", restarted {restarts} time{'s' if restarts > 1 else ''}"
    detail = said.text() if said else clip(ended.get("message"))
    return Failure(
        reason=_crash_reason(own, said),
        message=f"{text}: {detail}" if detail else text,
        exit_code=ended["exitCode"],
        said=said,
        container=container["name"],
    )


def _crash_reason(own: str, said: Said | None) -> str:
    if said is not None and said.reason in _TOLD_AS_SAID:
        return said.reason
    # "Error" says nothing; what the kubelet does about it does.
    return "CrashLoopBackOff" if own == "Error" else own


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            return dict(condition)
    return {}


def _fact(value: object) -> str:
    """A fact as a person reads it: several named ones in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {fact}" for name, fact in value.items())
    return str(value)


def clip(text: object) -> str:
    """One line of a text that others wrote, not longer than a condition can take."""
    line = " ".join(str(text or "").split())
    return line if len(line) <= _MESSAGE_LIMIT else line[: _MESSAGE_LIMIT - 1] + "…"

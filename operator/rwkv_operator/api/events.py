"""Which Kubernetes Events a change of the conditions is worth. Pure; posting is done elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rwkv_operator import names
from rwkv_operator.api import conditions

_MESSAGE_LIMIT: Final = 1024
"""The API server refuses longer ones."""

_CLUSTER_WIDE: Final = "default"
"""Namespace of Events about objects that have none, as Kubernetes itself has it for nodes."""

_WORTH: Final = (conditions.ADMITTED, conditions.DEGRADED, conditions.READY)
_GOOD: Final = {
    conditions.ADMITTED: "True",
    conditions.DEGRADED: "False",
    conditions.READY: "True",
}


@dataclass(frozen=True)
class Note:
    """One Event to post about a deployment."""

    type: str
    reason: str
    message: str


def build_notes(
    before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]
) -> tuple[Note, ...]:
    """Events for what has changed from one list of conditions to the next.

    A bad turn is told with its reason once, a good one only where it was bad before, so that
    neither a first start nor a steady state posts anything but its Ready.
    """
    known = {condition["type"]: condition for condition in before}
    notes = []
    for condition in after:
        kind = condition["type"]
        if kind in _WORTH:
            note = _note(kind, known.get(kind), condition)
            if note is not None and note not in notes:
                notes.append(note)
    return tuple(notes)


def build_download_notes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Note, ...]:
    """Events about a download: its start, each quarter of it, its end.

    Args:
        before: the status as it was.
        after: the status as it is now.
    """
    was, now = _model_loaded(before), _model_loaded(after)
    if now.get("reason") != conditions.DOWNLOADING:
        ended = was.get("reason") == conditions.DOWNLOADING
        if ended and now.get("reason") in (conditions.LOADING, conditions.LOADED):
            return (Note("Normal", "Downloaded", "the model is downloaded and checked"),)
        return ()
    if was.get("reason") == conditions.DOWNLOADING and _quarter(after) <= _quarter(before):
        return ()
    return (Note("Normal", conditions.DOWNLOADING, now["message"]),)


def build_event(subject: Mapping[str, Any], note: Note, now: str, suffix: str) -> dict[str, Any]:
    """A core/v1 Event about a custom resource.

    Args:
        subject: the resource as the API server shows it.
        note: what to tell.
        now: time in Kubernetes' format.
        suffix: makes the name of the event unique.
    """
    metadata = subject["metadata"]
    about = ("name", "namespace", "uid", "resourceVersion")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{suffix}",
            "namespace": metadata.get("namespace", _CLUSTER_WIDE),
        },
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": subject["kind"],
            **{key: metadata[key] for key in about if key in metadata},
        },
        "type": note.type,
        "reason": note.reason,
        "message": note.message[:_MESSAGE_LIMIT],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": names.FIELD_MANAGER,
        "reportingInstance": names.FIELD_MANAGER,
    }


def _model_loaded(status: Mapping[str, Any]) -> Mapping[str, Any]:
    found = (c for c in status.get("conditions") or () if c["type"] == conditions.MODEL_LOADED)
    return next(found, {})


def _quarter(status: Mapping[str, Any]) -> int:
    percent = (status.get("model") or {}).get("downloadPercent")
    return 0 if percent is None else int(percent) // 25


def _note(kind: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Note | None:
    same = before is not None and all(before[key] == after[key] for key in ("status", "reason"))
    if same:
        return None
    good = after["status"] == _GOOD[kind]
    if kind == conditions.READY:
        return Note("Normal", "Ready", after["message"]) if good else _lost(before, after)
    if good:
        was_bad = before is not None and before["status"] != after["status"]
        return Note("Normal", after["reason"], after["message"]) if was_bad else None
    return Note("Warning", after["reason"], after["message"])


def _lost(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Note | None:
    if before is None or before["status"] != "True":
        return None
    return Note("Warning", "NotReady", f"{after['reason']}: {after['message']}")

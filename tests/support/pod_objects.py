"""Pods as the API server shows them, in every state that a kubelet leaves them in."""

from __future__ import annotations

import json
from typing import Any

from rwkv_operator import names


def pod(
    name: str = "chat-engine-0",
    component: str = "engine",
    revision: str = "rev-2",
    deployment: str = "chat",
    **status: Any,
) -> dict[str, Any]:
    """A pod with that status; it hasn't been scheduled yet where none is given."""
    hashed = "controller-revision-hash" if component == "engine" else "pod-template-hash"
    labels = {**names.selector(deployment, component), hashed: revision}  # type: ignore[arg-type]
    kind, owner = "StatefulSet", f"{deployment}-engine"
    if component == "router":
        kind, owner = "ReplicaSet", f"{deployment}-router-{revision}"
    metadata = {
        "name": name,
        "namespace": "talk",
        "uid": f"uid-{name}",
        "labels": labels,
        "ownerReferences": [{"kind": kind, "name": owner, "uid": owner, "controller": True}],
    }
    return {
        "metadata": metadata,
        "status": {"phase": "Pending", **status},
    }


def ready(ip: str = "10.1.0.1") -> dict[str, Any]:
    """Status of a pod that serves."""
    return {
        "phase": "Running",
        "podIP": ip,
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "engine",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "containerID": "containerd://1",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }
        ],
    }


def loading(ip: str = "10.1.0.1") -> dict[str, Any]:
    """Status of a pod whose container runs and isn't ready yet."""
    status = ready(ip)
    status["conditions"] = [{"type": "Ready", "status": "False"}]
    status["containerStatuses"][0]["ready"] = False
    return status


def fetching(ip: str = "10.1.0.1", restarts: int = 0) -> dict[str, Any]:
    """Status of a pod whose init container downloads the model, again after it was killed."""
    container: dict[str, Any] = {
        "name": "model",
        "ready": False,
        "started": True,
        "restartCount": restarts,
        "containerID": f"containerd://model-{restarts}",
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    if restarts:
        container["lastState"] = {"terminated": {"exitCode": 137, "reason": "Error"}}
    waiting_state = {"waiting": {"reason": "PodInitializing"}}
    return {
        "phase": "Pending",
        "podIP": ip,
        "conditions": [{"type": "Ready", "status": "False"}],
        "initContainerStatuses": [container],
        "containerStatuses": [
            {"name": "engine", "ready": False, "started": False, "state": waiting_state}
        ],
    }


def unscheduled(message: str) -> dict[str, Any]:
    """Status of a pod that no node takes."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
    }
    return {"phase": "Pending", "conditions": [condition]}


def waiting(reason: str, message: str = "", init: bool | str = False) -> dict[str, Any]:
    """Status of a pod whose container can't start."""
    state = {"waiting": {"reason": reason, "message": message}}
    return _with_container({"state": state, "restartCount": 0}, init)


def crashed(
    code: int,
    reason: str = "Error",
    said: dict[str, Any] | str | None = None,
    restarts: int = 3,
    init: bool | str = False,
) -> dict[str, Any]:
    """Status of a pod whose container ends again and again."""
    text = json.dumps(said) if isinstance(said, dict) else said
    ended = {"exitCode": code, "reason": reason, "message": text}
    waiting_state = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed"}
    container = {
        "state": {"waiting": waiting_state},
        "lastState": {"terminated": {k: v for k, v in ended.items() if v is not None}},
        "restartCount": restarts,
    }
    return _with_container(container, init)


def _with_container(container: dict[str, Any], init: bool | str = False) -> dict[str, Any]:
    field = "initContainerStatuses" if init else "containerStatuses"
    name = init if isinstance(init, str) else "agent-init" if init else "engine"
    common = {"name": name, "ready": False, "started": False, "image": "i", "imageID": ""}
    return {
        "phase": "Pending" if init else "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "False"},
        ],
        field: [{**common, **container}],
    }

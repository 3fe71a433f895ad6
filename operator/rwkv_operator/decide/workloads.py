"""How far a change is rolled out, and whether less runs than the spec asks for."""

from __future__ import annotations

from typing import Final

from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.observed import Observed, Workload
from rwkv_operator.api.spec import Deployment

_CREATION_EVENTS: Final = ("FailedCreate", "FailedMount", "FailedAttachVolume")


def decide_progressing(dep: Deployment, observed: Observed) -> Condition:
    """The Progressing condition: is a change on its way?"""
    if observed.refusal is not None:
        text = "the engines are gone until what their preflight refused has changed"
        return Condition(conditions.PROGRESSING, "False", conditions.NOT_ADMITTED, text)
    for workload, kind, wanted in _parts(dep, observed):
        if workload is None or not workload.current or workload.wanted != wanted:
            if observed.config_hash is None:
                text = f"the {kind}s stay as they are until the deployment is admitted"
                return Condition(conditions.PROGRESSING, "False", conditions.NOT_ADMITTED, text)
            return _progressing("Applying", f"the {kind}s are being changed")
        # A StatefulSet's pods that are to go don't count as updated; a Deployment's surge is old.
        staying = min(workload.pods, wanted) if kind == "engine" else workload.pods
        if staying > workload.updated or _old_pods(observed, kind, workload):
            text = f"{workload.updated} of {wanted} {kind}s run the current template"
            return _progressing("RollingOut", text)
        if workload.pods != wanted:
            return _progressing("Scaling", f"{workload.pods} {kind} pods, {wanted} wanted")
    starting = [
        pod.name
        for kind in ("engine", "router")
        for pod in observed.pods_of(kind)
        if not pod.started and not pod.ready
    ]
    if starting:
        return _progressing("Starting", f"{', '.join(starting)}: not started yet")
    return Condition(
        conditions.PROGRESSING, "False", "Settled", "the current generation is rolled out"
    )


def decide_degraded(dep: Deployment, observed: Observed, progressing: bool) -> Condition:
    """The Degraded condition: what keeps the deployment below its spec, the worst first."""
    for refused in observed.refused:
        return _degraded("ApplyRefused", refused.text())
    for foreign in observed.foreign:
        return _degraded("NameTaken", foreign.text())
    if observed.refusal is not None:
        return _degraded(conditions.RUNTIME_MISMATCH, observed.refusal.text())
    for kind in ("engine", "router"):
        for pod in observed.pods_of(kind):
            if pod.failure is not None:
                return _degraded(pod.failure.reason, pod.failure.message)
    for event in observed.events:
        if event.reason in _CREATION_EVENTS:
            text = f"{event.kind} {event.name}: {event.message}"
            return _degraded(event.reason, text)
    for workload, _, wanted in _parts(dep, observed):
        if workload is not None and workload.refused and workload.pods < wanted:
            return _degraded("FailedCreate", f"{workload.name}: {workload.refused}")
    for workload, kind, wanted in _parts(dep, observed):
        ready = workload.ready if workload else 0
        # Nothing is below the spec before the first one is up; after that every gap counts.
        if ready < wanted and (ready > 0 or not progressing):
            text = f"{ready} of {wanted} {kind}s are ready"
            return _degraded("FewerReplicas", text, waiting=True)
    return Condition(conditions.DEGRADED, "False", "AsSpecified", "nothing is below the spec")


def _parts(
    dep: Deployment, observed: Observed
) -> tuple[tuple[Workload | None, str, int], tuple[Workload | None, str, int]]:
    return (
        (observed.engines, "engine", dep.spec.replicas),
        (observed.routers, "router", dep.spec.routing.replicas),
    )


def _old_pods(observed: Observed, kind: str, workload: Workload) -> bool:
    if workload.revision is None:
        return False
    return any(pod.revision != workload.revision for pod in observed.pods_of(kind))


def _progressing(reason: str, message: str) -> Condition:
    return Condition(conditions.PROGRESSING, "True", reason, message, waiting=True)


def _degraded(reason: str, message: str, waiting: bool = False) -> Condition:
    return Condition(conditions.DEGRADED, "True", reason, message, waiting)

"""Whether the routers run the wanted config and see an engine, and whether requests are served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.observed import Observed
from rwkv_operator.api.pods import Pod
from rwkv_operator.api.spec import Deployment

_AGENT_PROBLEMS: Final[Mapping[str, bool]] = {
    "ConfigRefused": False,
    "InvalidAPIKeys": False,
    "HAProxyUnreachable": True,
    "Starting": True,
}
"""What a router's agent may report, and whether it passes by itself."""


def decide_router_ready(dep: Deployment, observed: Observed) -> Condition:
    """The RouterReady condition: is the current config applied, and is a ready engine seen?"""
    pods = [pod for pod in observed.pods_of("router") if pod.ready]
    for pod in pods:
        report = observed.routers_seen.get(pod.name)
        reason = report.reason if report else None
        if report is not None and reason is not None and reason in _AGENT_PROBLEMS:
            text = f"{pod.name}: {report.error}"
            return _router("False", reason, text, _AGENT_PROBLEMS[reason])
    if not pods:
        return _router("False", "RouterStarting", "no router pod is ready yet")
    unknown = [pod for pod in pods if pod.name not in observed.routers_seen]
    if unknown:
        text = f"{_listed(unknown)}: no answer on the ports 8404 and 8405"
        return _router("Unknown", "RouterUnreachable", text)
    pending = [pod for pod in pods if not _runs_config(pod, observed)]
    if pending:
        return _router(
            "False", "ConfigPending", f"{_listed(pending)}: the current config isn't applied yet"
        )
    if dep.spec.replicas == 0:
        return _router(
            "False", conditions.SCALED_TO_ZERO, "spec.replicas is 0, no engine to route to"
        )
    blind = [pod for pod in pods if not observed.routers_seen[pod.name].sees_engine]
    if blind:
        return _router("False", "NoReadyEngine", f"{_listed(blind)}: no ready engine is seen")
    text = f"{len(pods)} routers run the current config and see a ready engine"
    return _router("True", "Routing", text)


def decide_available(dep: Deployment, observed: Observed) -> Condition:
    """The Available condition: is at least one router and one engine ready?"""
    engines = observed.engines.ready if observed.engines else 0
    routers = observed.routers.ready if observed.routers else 0
    if dep.spec.replicas == 0 and engines == 0:
        return _available("False", conditions.SCALED_TO_ZERO, "spec.replicas is 0")
    if engines == 0:
        return _available("False", "NoReadyEngine", "no engine is ready")
    if routers == 0:
        return _available("False", "NoReadyRouter", "no router is ready")
    return _available("True", "Serving", f"{engines} engines and {routers} routers are ready")


def _runs_config(pod: Pod, observed: Observed) -> bool:
    if observed.config_hash is None:
        # Nothing is written while it isn't admitted: the config from before is the wanted one.
        return True
    return observed.routers_seen[pod.name].config_hash == observed.config_hash


def _listed(pods: list[Pod]) -> str:
    return ", ".join(pod.name for pod in pods)


def _router(
    status: conditions.Status, reason: str, message: str, waiting: bool = True
) -> Condition:
    return Condition(conditions.ROUTER_READY, status, reason, message, waiting)


def _available(status: conditions.Status, reason: str, message: str) -> Condition:
    return Condition(conditions.AVAILABLE, status, reason, message)

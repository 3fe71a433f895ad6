"""The status of an RWKVDeployment as the API server stores it.

Pure; what the conditions say is decided in `decide/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rwkv_operator import names
from rwkv_operator.api import conditions, state
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.observed import ModelReport, Observed
from rwkv_operator.api.spec import Deployment


def build_status(
    dep: Deployment,
    observed: Observed,
    verdicts: Iterable[Condition],
    stored: Mapping[str, Any],
    now: str,
    cluster_domain: str,
) -> dict[str, Any]:
    """The whole status of a deployment whose spec could be read.

    Args:
        dep: the deployment.
        observed: what was seen of it.
        verdicts: its eight conditions.
        stored: the status as it is, for the times of the conditions.
        now: time in Kubernetes' format.
        cluster_domain: DNS domain of the cluster.
    """
    engines = observed.engines
    ready = engines.ready if engines else 0
    selector = names.selector(dep.name, "engine")
    status: dict[str, Any] = {
        "observedGeneration": dep.generation,
        "conditions": merged(verdicts, stored, dep.generation, now),
        "ready": f"{ready}/{dep.spec.replicas}",
        "replicas": engines.pods if engines else 0,
        "readyReplicas": ready,
        "selector": ",".join(f"{key}={value}" for key, value in sorted(selector.items())),
        "url": service_url(dep, cluster_domain),
        "model": {"name": dep.spec.model.served_name, **_model(observed, stored)},
        "state": _state(dep, observed, stored),
    }
    if observed.stack is not None:
        status["stack"] = {"name": observed.stack.name, "image": observed.stack.engine_image}
    return status


def build_unreadable_status(
    generation: int, verdicts: Iterable[Condition], stored: Mapping[str, Any], now: str
) -> dict[str, Any]:
    """The status of an object whose spec can't be read: what is known of it stays as it is."""
    kept = {key: value for key, value in stored.items() if key != "conditions"}
    return {
        **kept,
        "observedGeneration": generation,
        "conditions": merged(verdicts, stored, generation, now),
    }


def merged(
    verdicts: Iterable[Condition], stored: Mapping[str, Any], generation: int, now: str
) -> list[dict[str, Any]]:
    """The list of conditions for a status."""
    return conditions.merge(stored.get("conditions") or (), verdicts, generation, now)


def service_url(dep: Deployment, cluster_domain: str) -> str:
    """Where clients inside the cluster find the deployment."""
    port = dep.spec.service.port
    suffix = "" if port == 80 else f":{port}"
    return f"http://{names.service_host(dep.name, dep.namespace, cluster_domain)}{suffix}"


def _state(dep: Deployment, observed: Observed, stored: Mapping[str, Any]) -> dict[str, Any]:
    """The store and what is in it, as engines report it; the last one known where none does now.

    With a shared store each engine counts all states, else each counts its own.
    """
    store = dep.spec.state.store
    name = {"store": state.store_name(store)}
    found = [report.states for report in observed.reports.values() if report.states]
    if not found:
        kept = stored.get("state") or {}
        return {**name, **{key: kept[key] for key in ("count", "bytes") if key in kept}}
    total = max if state.is_shared(store) else sum
    return {
        **name,
        "count": total(states.count for states in found),
        "bytes": total(states.size for states in found),
    }


def _model(observed: Observed, stored: Mapping[str, Any]) -> dict[str, Any]:
    """The model as an engine reports it; the last one known where none answers now."""
    percents = [f.percent for f in observed.fetches.values() if f.percent is not None]
    download = {"downloadPercent": min(percents)} if percents else {}
    found = next((r.model for _, r in sorted(observed.reports.items()) if r.model), None)
    if isinstance(found, ModelReport):
        return {
            "digest": found.digest,
            "stateBytes": found.state_bytes,
            "vocabSize": found.vocab_size,
            **download,
        }
    kept = stored.get("model") or {}
    known = {key: kept[key] for key in ("digest", "stateBytes", "vocabSize") if key in kept}
    return {**known, **download}

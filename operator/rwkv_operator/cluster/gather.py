"""Reading of one deployment's objects from the API server, fresh on every pass.

No cache stands between a decision and the cluster: a watch that has missed something delays a
pass, and never makes a wrong one. Calls block; they are meant for threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rwkv_operator import errors, names
from rwkv_operator.api import observed
from rwkv_operator.api.pods import Pod, parse_pod
from rwkv_operator.api.stack import Stack, parse_stack
from rwkv_operator.cluster.client import Cluster
from rwkv_operator.cluster.kinds import KINDS

Key = tuple[str, str]
"""Kind and name."""

_ASKED_PODS: Final = 3


@dataclass(frozen=True)
class Children:
    """The live objects that carry a deployment's label.

    Attributes:
        served: optional kinds that the cluster has.
    """

    live: Mapping[Key, dict[str, Any]] = field(default_factory=dict)
    served: frozenset[str] = frozenset()


def gather_deployment(cluster: Cluster, namespace: str, name: str) -> dict[str, Any] | None:
    """The RWKVDeployment itself."""
    return cluster.get(names.DEPLOYMENT_KIND, namespace, name)


def gather_deployments(cluster: Cluster, namespace: str | None) -> list[dict[str, Any]]:
    """All RWKVDeployments of a namespace, or of the cluster."""
    return cluster.find(names.DEPLOYMENT_KIND, namespace)


def gather_stack(cluster: Cluster, name: str) -> Stack | errors.InvalidSpec | None:
    """A stack; None where there is none of that name, the error where it can't be read."""
    obj = cluster.get(names.STACK_KIND, None, name)
    if obj is None:
        return None
    try:
        return parse_stack(obj)
    except errors.InvalidSpec as error:
        return error


def gather_stack_names(cluster: Cluster) -> list[str]:
    """Names of all stacks."""
    return [obj["metadata"]["name"] for obj in cluster.find(names.STACK_KIND, None)]


def gather_children(cluster: Cluster, namespace: str, name: str) -> Children:
    """Every object of a child's kind that carries the deployment's label."""
    live: dict[Key, dict[str, Any]] = {}
    served = set()
    for kind in (kind for kind in KINDS.values() if kind.child):
        found = cluster.find_if_served(kind.kind, namespace, _label(name))
        if found is not None:
            served.add(kind.kind)
            live.update({(kind.kind, obj["metadata"]["name"]): obj for obj in found})
    return Children(live, frozenset(served))


def gather_named(
    cluster: Cluster, namespace: str, keys: Iterable[Key]
) -> dict[Key, dict[str, Any]]:
    """Objects by name, as far as they exist: one that isn't ours carries no label of ours."""
    found = {key: cluster.get(key[0], namespace, key[1]) for key in keys}
    return {key: obj for key, obj in found.items() if obj is not None}


def gather_pods(cluster: Cluster, namespace: str, name: str) -> tuple[Pod, ...]:
    """Pods that the controllers of a deployment's children have made.

    A pod of somebody else's with our label doesn't count, and isn't asked either.
    """
    found = cluster.find("Pod", namespace, labels=_label(name))
    return tuple(parse_pod(obj) for obj in found if _is_childs(obj, name))


def gather_warnings(
    cluster: Cluster, namespace: str, workload: observed.Workload | None, pods: Sequence[Pod]
) -> tuple[observed.Event, ...]:
    """What Kubernetes says about pods that it doesn't create or can't start.

    Only asked where something is missing and no pod says why: a namespace can have many events.
    """
    about: list[str] = []
    if workload is not None and workload.current and workload.pods < workload.wanted:
        about.append(f"involvedObject.name={workload.name},involvedObject.kind=StatefulSet")
    silent = [pod for pod in pods if not pod.started and not pod.ip and pod.failure is None]
    about.extend(f"involvedObject.uid={pod.uid}" for pod in silent[:_ASKED_PODS])
    newest = (_newest(cluster.find("Event", namespace, fields=fields)) for fields in about)
    return tuple(
        observed.parse_event(event)
        for event in newest
        if event is not None and event.get("type") == "Warning"
    )


def _is_childs(pod: Mapping[str, Any], name: str) -> bool:
    labels = pod["metadata"]["labels"]
    makers = {
        "engine": ("StatefulSet", names.engine(name)),
        "router": ("ReplicaSet", f"{names.router(name)}-{labels.get('pod-template-hash')}"),
    }
    return any(
        (owner["kind"], owner["name"]) == makers.get(labels.get(names.LABEL_COMPONENT, ""))
        for owner in pod["metadata"].get("ownerReferences") or ()
        if owner.get("controller")
    )


def _newest(events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The last event about one object: an old warning is settled by whatever came after it."""
    return max(events, key=_event_time, default=None)


def _event_time(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )


def _label(name: str) -> str:
    return f"{names.LABEL_DEPLOYMENT}={name}"

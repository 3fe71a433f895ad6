"""Who may do what to the pods: their identity, their network and how many may go at a time."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rwkv_operator import names
from rwkv_operator.api import spec
from rwkv_operator.manifests import model, storage
from rwkv_operator.manifests.context import Context
from rwkv_operator.manifests.metadata import build_metadata

USER_ID: Final = 65532

Peer = Mapping[str, Any]


def build_pod_security_context() -> dict[str, Any]:
    """Pod-level part of the restricted Pod Security Standard."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def build_container_security_context() -> dict[str, Any]:
    """Container-level part of the restricted Pod Security Standard."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def build_service_account(dep: spec.Deployment) -> dict[str, Any]:
    """The identity of all pods; no pod gets a token for it."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": build_metadata(dep, names.service_account(dep.name)),
        "automountServiceAccountToken": False,
    }


def build_engine_budget(dep: spec.Deployment) -> dict[str, Any] | None:
    """Node drains take one engine at a time; a single engine must not block them."""
    return _budget(dep, names.engine(dep.name), "engine", dep.spec.replicas)


def build_router_budget(dep: spec.Deployment) -> dict[str, Any] | None:
    """Node drains take one router at a time; a single router must not block them."""
    return _budget(dep, names.router(dep.name), "router", dep.spec.routing.replicas)


def build_engine_policy(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    """Engines hear their routers and each other, and speak to nothing but DNS and each other.

    A download also reaches a hub, and a store in S3 its server, wherever they are: their addresses
    can't be known here, and a policy can't tell the container that downloads from the engine
    beside it.
    """
    engines, routers = _pods(dep, "engine"), _pods(dep, "router")
    outbound = sorted({*model.outbound_ports(dep), *storage.outbound_ports(dep)})
    return _policy(
        dep,
        "engine",
        ingress=[
            _allow("from", [routers, engines], names.PORT_ENGINE),
            _allow("from", [routers, _operator(ctx), *ctx.scrape_from], names.PORT_ENGINE_OPS),
            *([_allow("from", [_operator(ctx)], names.PORT_FETCH)] if dep.spec.model.hub else []),
        ],
        egress=[
            _dns(),
            _allow("to", [engines], names.PORT_ENGINE),
            *([{"ports": _ports(*outbound)}] if outbound else []),
        ],
    )


def build_router_policy(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    """Routers hear the clients, and speak to nothing but DNS and their engines."""
    everyone: list[Peer] = [{"namespaceSelector": {}}]
    return _policy(
        dep,
        "router",
        ingress=[
            _allow("from", dep.spec.routing.allow_from or everyone, names.PORT_ROUTER),
            _allow(
                "from",
                [_operator(ctx), *ctx.scrape_from],
                names.PORT_ROUTER_OPS,
                names.PORT_AGENT,
            ),
        ],
        egress=[
            _dns(),
            _allow("to", [_pods(dep, "engine")], names.PORT_ENGINE, names.PORT_ENGINE_OPS),
        ],
    )


def _budget(
    dep: spec.Deployment, name: str, component: names.Component, replicas: int
) -> dict[str, Any] | None:
    if replicas < 2:
        return None
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": build_metadata(dep, name, component),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": names.selector(dep.name, component)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _policy(
    dep: spec.Deployment,
    component: names.Component,
    ingress: list[dict[str, Any]],
    egress: list[dict[str, Any]],
) -> dict[str, Any]:
    name = names.engine(dep.name) if component == "engine" else names.router(dep.name)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": build_metadata(dep, name, component),
        "spec": {
            "podSelector": {"matchLabels": names.selector(dep.name, component)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def _allow(direction: str, peers: Sequence[Peer], *ports: int) -> dict[str, Any]:
    return {
        direction: copy.deepcopy([dict(peer) for peer in peers]),
        "ports": _ports(*ports),
    }


def _ports(*ports: int) -> list[dict[str, Any]]:
    return [{"port": port, "protocol": "TCP"} for port in ports]


def _dns() -> dict[str, Any]:
    # Wherever it runs: as pods, as a cache on the node, or outside.
    return {"ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]}


def _pods(dep: spec.Deployment, component: names.Component) -> Peer:
    return {"podSelector": {"matchLabels": names.selector(dep.name, component)}}


def _operator(ctx: Context) -> Peer:
    return {
        "namespaceSelector": {"matchLabels": {names.LABEL_NAMESPACE: ctx.operator_namespace}},
        "podSelector": {"matchLabels": dict(ctx.operator_labels)},
    }

"""The two Services: one for clients, one that gives every engine a name."""

from __future__ import annotations

from typing import Any

from rwkv_operator import names
from rwkv_operator.api import spec
from rwkv_operator.manifests.metadata import build_metadata


def build_service(dep: spec.Deployment) -> dict[str, Any]:
    """The Service that clients talk to; the routers are behind it."""
    service = dep.spec.service
    metadata = build_metadata(dep, names.service(dep.name), "router")
    if service.annotations:
        metadata["annotations"] = dict(service.annotations)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": service.type,
            "selector": names.selector(dep.name, "router"),
            "ports": [
                {"name": "http", "port": service.port, "protocol": "TCP", "targetPort": "http"}
            ],
        },
    }


def build_engine_service(dep: spec.Deployment) -> dict[str, Any]:
    """The headless Service of the engines, so that each ordinal has a DNS name.

    A pod that isn't ready has no name: a router must not learn an address before it can serve.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": build_metadata(dep, names.engine(dep.name), "engine"),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": False,
            "selector": names.selector(dep.name, "engine"),
            "ports": [
                {"name": "http", "port": names.PORT_ENGINE, "protocol": "TCP"},
                {"name": "ops", "port": names.PORT_ENGINE_OPS, "protocol": "TCP"},
            ],
        },
    }

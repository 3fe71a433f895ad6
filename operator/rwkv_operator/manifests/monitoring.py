"""The PodMonitor, for clusters where the Prometheus operator runs."""

from __future__ import annotations

from typing import Any

from rwkv_operator import names
from rwkv_operator.api import spec
from rwkv_operator.manifests.context import Context
from rwkv_operator.manifests.metadata import build_metadata


def build_pod_monitor(dep: spec.Deployment, ctx: Context) -> dict[str, Any] | None:
    """Metrics of engines and routers; both call their port `ops`."""
    if not ctx.pod_monitor:
        return None
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": build_metadata(dep, names.pod_monitor(dep.name)),
        "spec": {
            "selector": {"matchLabels": {names.LABEL_DEPLOYMENT: dep.name}},
            "podMetricsEndpoints": [{"port": "ops", "path": "/metrics"}],
            "podTargetLabels": [names.LABEL_DEPLOYMENT, names.LABEL_COMPONENT],
        },
    }

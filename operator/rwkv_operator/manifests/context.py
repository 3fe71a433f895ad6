"""What manifests need to know besides the deployment itself: its stack and the installation.

Only values; where they come from is the business of `settings` and `cluster/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rwkv_operator.api import refusal, stack


@dataclass(frozen=True)
class Context:
    """The stack that a deployment runs on, and the installation that serves it.

    Attributes:
        stack: the stack that the deployment names.
        operator_image: image of the router pods' agent.
        router_image: image with HAProxy.
        operator_namespace: where the operator runs, for network policies.
        operator_labels: labels that select the operator's pods there.
        cluster_domain: last part of the cluster's DNS names.
        pod_monitor: whether the cluster knows PodMonitors.
        scrape_from: peers of a NetworkPolicy that may read metrics.
        refusal: of a preflight, while it holds: there are no engine pods then.
    """

    stack: stack.Stack
    operator_image: str
    router_image: str
    operator_namespace: str
    operator_labels: Mapping[str, str]
    cluster_domain: str = "cluster.local"
    pod_monitor: bool = False
    scrape_from: tuple[Mapping[str, Any], ...] = ()
    refusal: refusal.Refusal | None = None

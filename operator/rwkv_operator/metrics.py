"""What the operator counts about itself, for `/metrics`. One object per process, passed around."""

from __future__ import annotations

import prometheus_client as prometheus


class Metrics:
    """The operator's own metrics, in a registry of their own."""

    def __init__(self) -> None:
        """Make every metric, so that each is there with 0 from the start."""
        self.registry = prometheus.CollectorRegistry()
        self.reconciles = prometheus.Counter(
            "rwkv_operator_reconciles",
            "Passes over a deployment.",
            ["result"],
            registry=self.registry,
        )
        self.seconds = prometheus.Histogram(
            "rwkv_operator_reconcile_seconds",
            "Duration of one pass over a deployment.",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.mutating = prometheus.Counter(
            "rwkv_operator_mutating_requests",
            "Requests to the API server that may write.",
            ["method"],
            registry=self.registry,
        )
        self.applied = prometheus.Counter(
            "rwkv_operator_applied_children",
            "Children that were made or changed.",
            ["kind"],
            registry=self.registry,
        )
        self.deployments = prometheus.Gauge(
            "rwkv_operator_deployments",
            "Deployments by whether they are Ready.",
            ["ready"],
            registry=self.registry,
        )
        self.queued = prometheus.Gauge(
            "rwkv_operator_queued",
            "Deployments that wait for a pass.",
            registry=self.registry,
        )
        self.contact_age = prometheus.Gauge(
            "rwkv_operator_contact_age_seconds",
            "Seconds since the API server last told or answered anything.",
            registry=self.registry,
        )
        prometheus.ProcessCollector(registry=self.registry)
        for result in ("ok", "gone", "error"):
            self.reconciles.labels(result)
        for method in ("POST", "PATCH", "DELETE"):
            self.mutating.labels(method)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return prometheus.generate_latest(self.registry)

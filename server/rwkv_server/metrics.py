"""The server's own Prometheus metrics, and a reader for the few of the child's that it needs.

The parent's live in a registry of their own, so that /metrics can append the child's text to them
without two families of one name.
"""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

# Kept by the gate inside the child, read by the parent: the drain is over when it is 0.
IN_FLIGHT = "rwkv_http_requests_in_flight"
# Kept by the states' part of the child: what is in the store, as this engine knows it.
STATES = "rwkv_states"
STATE_BYTES = "rwkv_states_bytes"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"


class Metrics:
    """What the parent knows about the pod, as metrics."""

    def __init__(self) -> None:
        """Make an empty registry of its own."""
        self._registry = CollectorRegistry()
        self.ready = Gauge(
            "rwkv_engine_ready", "1 while the router may send requests.", registry=self._registry
        )
        self.draining = Gauge(
            "rwkv_engine_draining", "1 from the start of the drain.", registry=self._registry
        )
        self.start_seconds = Gauge(
            "rwkv_engine_start_seconds",
            "Seconds from the parent's start to the first ready.",
            registry=self._registry,
        )
        self.child_up = Gauge(
            "rwkv_engine_child_up",
            "1 if the child's metrics are part of this answer.",
            registry=self._registry,
        )
        self.store_ok = Gauge(
            "rwkv_state_store_ok", "1 if the last probe passed.", registry=self._registry
        )
        self.store_failures = Counter(
            "rwkv_state_store_probe_failures", "Probes that failed.", registry=self._registry
        )

    def render(self, child: str | None) -> str:
        """The exposition text: ours, then the child's if it answered."""
        self.child_up.set(0 if child is None else 1)
        return generate_latest(self._registry).decode() + (child or "")


def sum_samples(text: str, name: str) -> float | None:
    """The sum of all samples called `name` in an exposition text, or None if there is none."""
    pattern = rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)"
    found = re.findall(pattern, text, flags=re.MULTILINE)
    return sum(float(value) for value in found) if found else None

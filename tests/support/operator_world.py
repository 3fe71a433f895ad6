"""A world for tests of a pass: a cluster in memory, the real decisions, pods that answer."""

from __future__ import annotations

import itertools
from typing import Any

import deployments
import httpx
import node_objects
import pod_objects
from memory_cluster import MemoryCluster

from rwkv_operator import names
from rwkv_operator.cluster.nodes import Nodes
from rwkv_operator.cluster.pods import PodReports
from rwkv_operator.manifests import children
from rwkv_operator.metrics import Metrics
from rwkv_operator.reconcile import Reconciler
from rwkv_operator.settings import Settings

KEY = ("talk", "chat")
SETTINGS = Settings(
    operator_image="registry.example/operator:1",
    router_image="registry.example/router:1",
    namespace="rwkv-system",
    labels={"app.kubernetes.io/name": "rwkv-operator"},
)
REPORT = {
    "model": {"digest": "sha256:1", "stateBytes": 10, "vocabSize": 320},
    "store": {"kind": "perPod", "ok": True, "reason": "PerPod", "message": ""},
}


class World:
    """A cluster with one deployment, and pods that answer what they are told to."""

    def __init__(self, spec: dict[str, Any] | None = None, stack: bool = True) -> None:
        self.chat = {
            "apiVersion": "serving.rwkv.dev/v1alpha1",
            "kind": "RWKVDeployment",
            **deployments.raw({"replicas": 2, **(spec or {})}),
        }
        self.cluster = MemoryCluster(self.chat, node_objects.node())
        if stack:
            self.add_stack()
        self.config_hash: str | None = None
        self.silent = False
        self.key_problem: str | None = None
        self.fetch: dict[str, Any] = {"phase": "Resolving", "message": "asking the hub"}
        self.metrics = Metrics()
        numbers = itertools.count()
        self.reconciler = Reconciler(
            self.cluster,  # type: ignore[arg-type]
            Nodes(self.cluster, lambda: 0.0, max_age=-1),  # type: ignore[arg-type]
            PodReports(httpx.AsyncClient(transport=httpx.MockTransport(self.answer))),
            SETTINGS,
            self.metrics,
            lambda: "2026-01-02T00:00:00Z",
            lambda: f"{next(numbers):048d}",
        )

    def add_stack(self) -> None:
        """The cpu stack, made by somebody."""
        self.cluster.put(deployments.cpu_stack_object())

    async def look(self) -> float | None:
        """One pass; `cluster.writes` has what it wrote."""
        self.cluster.writes.clear()
        return await self.reconciler.reconcile(*KEY)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """What a pod says."""
        if self.silent:
            raise httpx.ReadTimeout("busy", request=request)
        match request.url.path:
            case "/progress" if request.url.port == names.PORT_FETCH:
                return httpx.Response(200, json=self.fetch)
            case "/progress":
                return httpx.Response(200, json={"phase": "Ready", "message": ""})
            case "/report":
                return httpx.Response(200, json=REPORT)
            case "/status":
                problem = {"error": self.key_problem, "reason": self.key_problem}
                return httpx.Response(200, json={"configHash": self.config_hash, **problem})
            case _:
                return httpx.Response(200)

    def serve(self) -> None:
        """What the controllers and the kubelet do: pods that run, counts that are full."""
        for kind, name, component in (
            ("StatefulSet", "chat-engine", "engine"),
            ("Deployment", "chat-router", "router"),
        ):
            workload = self.cluster.objects[kind, name]
            count = workload["spec"]["replicas"]
            workload["status"] = {
                "observedGeneration": workload["metadata"]["generation"],
                "replicas": count,
                "readyReplicas": count,
                "updatedReplicas": count,
                "updateRevision": "rev-2" if kind == "StatefulSet" else None,
            }
            for index in range(count):
                status = pod_objects.ready(f"10.1.{len(component)}.{index + 1}")
                pod = pod_objects.pod(f"{name}-{index}", component, "rev-2", **status)
                self.cluster.put({"kind": "Pod", **pod})
        text = self.cluster.objects["ConfigMap", "chat-router"]["data"]["haproxy.cfg"]
        self.config_hash = children.router.haproxy.config_hash(text)

    def conditions(self) -> dict[str, tuple[str, str]]:
        """Status and reason of each condition."""
        status = self.cluster.objects["RWKVDeployment", "chat"]["status"]
        return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}

    def message(self, kind: str) -> str:
        """The message of one condition."""
        status = self.cluster.objects["RWKVDeployment", "chat"]["status"]
        return next(c["message"] for c in status["conditions"] if c["type"] == kind)

"""What the operator may have observed of the deployment `chat` with two engines and routers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import deployments
import pod_objects

from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.observed import (
    EngineReport,
    ModelReport,
    Observed,
    RouterReport,
    StoreReport,
    Workload,
)
from rwkv_operator.api.pods import Pod, parse_pod

REVISION = "rev-2"
OLD_REVISION = "rev-1"
ADMITTED = Condition("Admitted", "True", "Admitted", "stack cpu can run the spec")
REPORT = EngineReport(
    "Ready", "", None, ModelReport("sha256:1", 10, 320), StoreReport(True, "PerPod", "")
)
ROUTER = RouterReport("hash-1", True)


def engine(ordinal: int = 0, revision: str = REVISION, **status: Any) -> Pod:
    """An engine pod; ready where no status is given."""
    status = status or pod_objects.ready(f"10.1.0.{ordinal + 1}")
    return parse_pod(pod_objects.pod(f"chat-engine-{ordinal}", "engine", revision, **status))


def router(ordinal: int = 0, **status: Any) -> Pod:
    """A router pod; ready where no status is given."""
    status = status or pod_objects.ready(f"10.1.1.{ordinal + 1}")
    return parse_pod(pod_objects.pod(f"chat-router-{ordinal}", "router", "t1", **status))


def engines(**changes: Any) -> Workload:
    """The StatefulSet, rolled out; `changes` replace its fields."""
    return replace(Workload("chat-engine", 2, True, 2, 2, 2, REVISION), **changes)


def routers(**changes: Any) -> Workload:
    """The routers' Deployment, rolled out; `changes` replace its fields."""
    return replace(Workload("chat-router", 2, True, 2, 2, 2), **changes)


def serving(**changes: Any) -> Observed:
    """Everything is as it should be; `changes` replace fields."""
    steady = Observed(
        stack=deployments.cpu_stack(),
        engines=engines(),
        routers=routers(),
        pods=(engine(0), engine(1), router(0), router(1)),
        reports={"chat-engine-0": REPORT, "chat-engine-1": REPORT},
        routers_seen={"chat-router-0": ROUTER, "chat-router-1": ROUTER},
        config_hash="hash-1",
    )
    return replace(steady, **changes)


def starting(*pods: Pod, **changes: Any) -> Observed:
    """The engines aren't up yet; `pods` are those that there are, besides the routers."""
    return serving(
        **{
            "engines": engines(ready=0),
            "pods": (*pods, router(0), router(1)),
            "reports": {},
            "routers_seen": {f"chat-router-{i}": RouterReport("hash-1", False) for i in (0, 1)},
            **changes,
        }
    )

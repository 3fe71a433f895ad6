"""What was seen of one deployment in the cluster, as values: the input of every decision.

`cluster/` fills these in; the readers of raw objects here are pure. What wasn't seen is absent or
None: unknown is not the same as bad.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rwkv_operator.api.pods import Pod, clip
from rwkv_operator.api.refusal import Refusal
from rwkv_operator.api.stack import Stack

_GOING_ON: Final = ("Waiting", "Downloading", "Verifying", "Converting")


@dataclass(frozen=True)
class Workload:
    """A StatefulSet or Deployment: what its controller has done so far.

    Attributes:
        current: the controller has seen the newest version of the object.
        pods, ready, updated: counts as the controller reports them.
        revision: hash of the newest template, where the controller tells it.
        refused: why the controller can't make pods, as Kubernetes says it.
    """

    name: str
    wanted: int
    current: bool
    pods: int
    ready: int
    updated: int
    revision: str | None = None
    refused: str | None = None


@dataclass(frozen=True)
class ModelReport:
    """The model that an engine has checked."""

    digest: str
    state_bytes: int
    vocab_size: int


@dataclass(frozen=True)
class StoreReport:
    """The result of an engine's write-read-delete probe."""

    ok: bool
    reason: str
    message: str


@dataclass(frozen=True)
class StatesReport:
    """How many saved states an engine knows of in its store, and what they take."""

    count: int
    size: int


@dataclass(frozen=True)
class EngineReport:
    """What an engine says about itself on its ops port."""

    phase: str
    message: str
    percent: int | None = None
    model: ModelReport | None = None
    store: StoreReport | None = None
    states: StatesReport | None = None


@dataclass(frozen=True)
class FetchReport:
    """How far the container that downloads a model is.

    Attributes:
        total: None as long as the hub hasn't told.
        rate: bytes per second.
    """

    phase: str
    message: str
    percent: int | None = None
    done: int = 0
    total: int | None = None
    rate: int = 0


@dataclass(frozen=True)
class RouterReport:
    """What a router pod says: the config that its agent applied, whether it sees engines.

    Attributes:
        error: what is wrong, in one line.
        reason: kind of the worst problem, as the agent names it.
    """

    config_hash: str | None
    sees_engine: bool
    error: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Event:
    """A warning that Kubernetes posted about a child."""

    kind: str
    name: str
    reason: str
    message: str


@dataclass(frozen=True)
class Foreign:
    """An object that has a child's name and isn't ours."""

    kind: str
    name: str
    owner: str

    def text(self) -> str:
        """Which object it is, whose, and what to do."""
        return (
            f"{self.kind} {self.name} exists and is controlled by {self.owner}; "
            "delete it or give the RWKVDeployment another name"
        )


@dataclass(frozen=True)
class Refused:
    """A child that the API server refused."""

    kind: str
    name: str
    message: str

    def text(self) -> str:
        """Which object it is and what the API server said."""
        return f"{self.kind} {self.name} was refused: {self.message}"


@dataclass(frozen=True)
class Observed:
    """Everything that the decisions about one deployment look at, besides its spec.

    Attributes:
        config_hash: hash of the router config that is wanted now.
        reports: by name of the engine pod; missing means not reached.
        fetches: the same, of pods that download their model.
        routers_seen: by name of the router pod; missing means not reached.
        config_hash: of the routers' wanted config; None while nothing is written, as the
            deployment isn't admitted.
        refusal: why the engines are scaled to zero, where a preflight refused.
    """

    stack: Stack | None = None
    engines: Workload | None = None
    routers: Workload | None = None
    pods: tuple[Pod, ...] = ()
    events: tuple[Event, ...] = ()
    reports: Mapping[str, EngineReport] = field(default_factory=dict)
    fetches: Mapping[str, FetchReport] = field(default_factory=dict)
    routers_seen: Mapping[str, RouterReport] = field(default_factory=dict)
    foreign: tuple[Foreign, ...] = ()
    refused: tuple[Refused, ...] = ()
    config_hash: str | None = None
    refusal: Refusal | None = None

    def hear(
        self,
        reports: Mapping[str, EngineReport],
        fetches: Mapping[str, FetchReport],
        routers: Mapping[str, RouterReport],
    ) -> Observed:
        """The same with what the pods say.

        A download that goes on has got over what ended it before, so that isn't a failure any more.
        """
        going_on = {name for name, fetch in fetches.items() if fetch.phase in _GOING_ON}
        pods = tuple(replace(p, failure=None) if p.name in going_on else p for p in self.pods)
        return replace(self, pods=pods, reports=reports, fetches=fetches, routers_seen=routers)

    def pods_of(self, component: str) -> tuple[Pod, ...]:
        """Pods of one component that aren't going away, by name."""
        chosen = (p for p in self.pods if p.component == component and not p.terminating)
        return tuple(sorted(chosen, key=lambda pod: pod.name))


def parse_workload(obj: Mapping[str, Any] | None) -> Workload | None:
    """Read a StatefulSet or a Deployment."""
    if obj is None:
        return None
    metadata = obj["metadata"]
    status = obj.get("status") or {}
    return Workload(
        name=metadata["name"],
        wanted=(obj.get("spec") or {}).get("replicas", 1),
        current=status.get("observedGeneration", 0) >= metadata.get("generation", 1),
        pods=status.get("replicas", 0),
        ready=status.get("readyReplicas", 0),
        updated=status.get("updatedReplicas", 0),
        revision=status.get("updateRevision"),
        refused=_replica_failure(status),
    )


def parse_event(obj: Mapping[str, Any]) -> Event:
    """Read a core/v1 Event."""
    about = obj.get("involvedObject") or {}
    return Event(
        kind=about.get("kind", ""),
        name=about.get("name", ""),
        reason=obj.get("reason", ""),
        message=" ".join((obj.get("message") or "").split()),
    )


def parse_engine_report(progress: Mapping[str, Any], report: Mapping[str, Any]) -> EngineReport:
    """Read an engine's `/progress` and `/report`."""
    return EngineReport(
        phase=clip(progress["phase"]),
        message=clip(progress.get("message")),
        percent=None if progress.get("percent") is None else int(progress["percent"]),
        model=_model_report(report.get("model")),
        store=_store_report(report.get("store")),
        states=_states_report(report.get("states")),
    )


def parse_fetch_report(progress: Mapping[str, Any]) -> FetchReport:
    """Read the `/progress` of a container that downloads a model."""
    percent, total = progress.get("percent"), progress.get("total")
    return FetchReport(
        phase=clip(progress["phase"]),
        message=clip(progress.get("message")),
        percent=None if percent is None else int(percent),
        done=int(progress.get("bytes") or 0),
        total=None if total is None else int(total),
        rate=int(progress.get("rate") or 0),
    )


def parse_router_report(status: Mapping[str, Any], sees_engine: bool) -> RouterReport:
    """Read a router agent's `/status`, beside whether its proxy is ready."""
    config_hash, error, reason = (status.get(key) for key in ("configHash", "error", "reason"))
    return RouterReport(
        config_hash=None if config_hash is None else clip(config_hash),
        sees_engine=sees_engine,
        error=None if error is None else clip(error),
        reason=None if reason is None else clip(reason),
    )


def _model_report(model: Mapping[str, Any] | None) -> ModelReport | None:
    if model is None:
        return None
    return ModelReport(
        digest=clip(model["digest"]),
        state_bytes=int(model["stateBytes"]),
        vocab_size=int(model["vocabSize"]),
    )


def _store_report(store: Mapping[str, Any] | None) -> StoreReport | None:
    if store is None:
        return None
    return StoreReport(bool(store["ok"]), clip(store["reason"]), clip(store.get("message")))


def _states_report(states: Mapping[str, Any] | None) -> StatesReport | None:
    return None if states is None else StatesReport(int(states["count"]), int(states["bytes"]))


def _replica_failure(status: Mapping[str, Any]) -> str | None:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return str(condition.get("message") or condition.get("reason"))
    return None

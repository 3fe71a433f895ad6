"""What the parent knows right now: written by the life of the pod, read by the ops port.

One object, made by `__main__` and passed on. Each attribute is replaced as a whole, so that the
thread which reads the child's log may write too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from rwkv_server.parent.engine_http import Load
from rwkv_server.preflight.model import ModelInfo
from rwkv_server.preflight.store import StoreReport

Phase = Literal[
    "Preflight",
    "Converting",
    "CheckingModel",
    "ProbingStore",
    "LoadingModel",
    "Ready",
    "Draining",
    "Failed",
]
REPORT_VERSION = 1


@dataclass(frozen=True)
class Progress:
    """How far the current phase is."""

    message: str
    percent: int | None = None


@dataclass
class Status:
    """The pod's state.

    Attributes:
        phase: where the pod is in its life.
        healthy: the child answers its health check.
        served: it has answered one, so that requests may be in flight.
        draining: the drain has begun; never goes back.
        drained: nothing is in flight any more, or the drain ran out of time.
        child_died: the child ended by itself.
        clock: seconds, monotonic.
    """

    clock: Callable[[], float] = time.monotonic
    phase: Phase = "Preflight"
    progress: Progress = Progress("comparing the container with its hardware stack")
    healthy: bool = False
    served: bool = False
    draining: bool = False
    drained: bool = False
    child_died: bool = False
    model: ModelInfo | None = None
    store: StoreReport | None = None
    started: float = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock."""
        self.started = self.clock()

    @property
    def ready(self) -> bool:
        """Whether the router should send new requests."""
        return self.healthy and not self.draining and not self.child_died

    @property
    def elapsed_s(self) -> float:
        """Seconds since the parent started."""
        return self.clock() - self.started

    def enter(self, phase: Phase, message: str) -> None:
        """Go on to the next phase."""
        self.phase = phase
        self.progress = Progress(message)

    def render_ready(self) -> dict[str, Any]:
        """The body of /readyz."""
        return {"ready": self.ready, "draining": self.draining, "phase": self.phase}

    def render_progress(self) -> dict[str, Any]:
        """The body of /progress."""
        return {
            "phase": self.phase,
            "message": self.progress.message,
            "percent": self.progress.percent,
            "elapsed_s": round(self.elapsed_s, 1),
        }

    def render_report(self, load: Load) -> dict[str, Any]:
        """The body of /report; the operator reads it into the deployment's status."""
        model, store = self.model, self.store
        return {
            "version": REPORT_VERSION,
            "model": model
            and {
                "digest": model.digest,
                "stateBytes": model.state_bytes,
                "vocabSize": model.vocab_size,
                "dtype": model.dtype,
                "format": model.format,
            },
            "store": store
            and {
                "kind": store.kind,
                "ok": store.ok,
                "reason": store.reason,
                "message": store.message,
            },
            "states": None
            if load.states is None
            else {"count": load.states, "bytes": load.state_bytes or 0},
            "requests": {"running": load.running, "waiting": load.waiting},
            "draining": self.draining,
        }

"""When a deployment is to be looked at again although nothing in the cluster changes.

Engines and routers tell things that Kubernetes has no events for, so they are asked often while
one of them is on its way, and seldom otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.observed import Observed


@dataclass(frozen=True)
class Intervals:
    """Seconds between two looks at a deployment, by its state."""

    moving: float = 2.0
    unready: float = 30.0
    steady: float = 300.0
    downloading: float = 10.0


def decide_resync(verdicts: Iterable[Condition], observed: Observed, intervals: Intervals) -> float:
    """Seconds until the next look."""
    by_type = {verdict.type: verdict for verdict in verdicts}
    if by_type[conditions.READY].status == "True":
        return intervals.steady
    if by_type[conditions.MODEL_LOADED].reason == conditions.DOWNLOADING:
        # Each look finds other numbers to write into the status, for as long as hours.
        return intervals.downloading
    # Pods without an address can't be asked; Kubernetes tells when they get one.
    askable = any(pod.ip and not pod.failure for pod in observed.pods)
    if askable and by_type[conditions.READY].waiting:
        return intervals.moving
    return intervals.unready

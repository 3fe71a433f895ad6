"""All eight conditions of a deployment, computed together and once, at the end of a pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.observed import Observed
from rwkv_operator.api.spec import Deployment
from rwkv_operator.decide import engines, model, routers, workloads

_BAD_WHEN_TRUE: Final = (conditions.PROGRESSING, conditions.DEGRADED)
_UNSEEN: Final = (
    conditions.MODEL_LOADED,
    conditions.STATE_STORE_READY,
    conditions.ROUTER_READY,
)


def decide_conditions(
    dep: Deployment, observed: Observed, admitted: Condition
) -> tuple[Condition, ...]:
    """The eight conditions, in their order.

    A deployment that isn't admitted may still have pods from before; they are told about as they
    are.
    """
    if admitted.status != "True" and observed.engines is None:
        return decide_unseen(admitted)
    progressing = workloads.decide_progressing(dep, observed)
    causes = (
        admitted,
        model.decide_model_loaded(dep, observed),
        engines.decide_store_ready(dep, observed),
        routers.decide_router_ready(dep, observed),
        progressing,
        workloads.decide_degraded(dep, observed, progressing.status == "True"),
    )
    return (*causes, routers.decide_available(dep, observed), decide_ready(dep, causes))


def decide_unseen(admitted: Condition) -> tuple[Condition, ...]:
    """The eight conditions of a deployment that has no children because it isn't admitted."""
    reason, text = conditions.NOT_ADMITTED, "the deployment isn't admitted"
    return (
        admitted,
        *(Condition(kind, "Unknown", reason, text) for kind in _UNSEEN),
        Condition(conditions.PROGRESSING, "False", reason, text),
        Condition(conditions.DEGRADED, "False", reason, text),
        Condition(conditions.AVAILABLE, "False", reason, text),
        Condition(conditions.READY, "False", admitted.reason, admitted.message),
    )


def decide_ready(dep: Deployment, causes: Iterable[Condition]) -> Condition:
    """The Ready condition: True, or the first cause that keeps it from being so.

    What somebody has to act on comes before what passes by itself: a pod that crashes also makes
    the model "loading", and only the former explains anything.
    """
    failing = [cause for cause in causes if _fails(cause)]
    if not failing:
        text = f"{dep.spec.replicas} of {dep.spec.replicas} engines serve generation"
        return Condition(conditions.READY, "True", "Ready", f"{text} {dep.generation}")
    first = next((cause for cause in failing if not cause.waiting), failing[0])
    return Condition(conditions.READY, "False", first.reason, first.message, waiting=first.waiting)


def _fails(cause: Condition) -> bool:
    return cause.status != ("False" if cause.type in _BAD_WHEN_TRUE else "True")

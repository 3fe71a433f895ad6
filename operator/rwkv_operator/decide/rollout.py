"""Which pods stand in the way of a rollout and have to be removed for it to go on.

A StatefulSet replaces pods one after the other and waits for each to become ready. A pod of an
older template that never started will never become ready, so the fixed template behind it would
wait for ever.
"""

from __future__ import annotations

from rwkv_operator.api.observed import Observed
from rwkv_operator.api.pods import Pod


def decide_stuck_pods(observed: Observed) -> tuple[Pod, ...]:
    """Engine pods of an older template that fail and have never started.

    A pod that serves, that is loading without an error or that is going away is left alone.
    """
    engines = observed.engines
    if engines is None or not engines.current or engines.revision is None:
        return ()
    return tuple(
        pod
        for pod in observed.pods_of("engine")
        if pod.revision != engines.revision
        and pod.failure is not None
        and not pod.started
        and not pod.ready
    )

import observations as seen
import pod_objects
import pytest

from rwkv_operator.api.observed import Observed
from rwkv_operator.decide.rollout import decide_stuck_pods

CRASHED = pod_objects.crashed(64)


@pytest.mark.parametrize(
    ("observed", "removed"),
    [
        pytest.param(
            seen.serving(pods=(seen.engine(0), seen.engine(1, seen.OLD_REVISION, **CRASHED))),
            ["chat-engine-1"],
            id="a pod of a broken template goes, so that the fixed one can come",
        ),
        pytest.param(
            seen.serving(
                pods=(
                    seen.engine(0, seen.OLD_REVISION),
                    seen.engine(1, seen.OLD_REVISION, **pod_objects.loading()),
                )
            ),
            [],
            id="old pods that serve or load are left to the StatefulSet",
        ),
        pytest.param(
            seen.serving(pods=(seen.engine(0), seen.engine(1, **CRASHED))),
            [],
            id="a broken pod of the newest template stays: it is no use to make it again",
        ),
        pytest.param(
            seen.serving(
                engines=seen.engines(current=False),
                pods=(seen.engine(1, seen.OLD_REVISION, **CRASHED),),
            ),
            [],
            id="the newest template isn't known before the controller has seen it",
        ),
        pytest.param(Observed(), [], id="nothing is there yet"),
    ],
)
def test_a_pod_is_removed_when(observed: Observed, removed: list[str]) -> None:
    assert [pod.name for pod in decide_stuck_pods(observed)] == removed

import deployments
import observations as seen
import pod_objects
import pytest

from rwkv_operator.api.observed import FetchReport, Observed
from rwkv_operator.decide import readiness, resync

INTERVALS = resync.Intervals(moving=1, unready=10, steady=100, downloading=5)


@pytest.mark.parametrize(
    ("observed", "seconds"),
    [
        pytest.param(seen.serving(), 100, id="steady: seldom"),
        pytest.param(
            seen.starting(seen.engine(0, **pod_objects.loading())),
            1,
            id="an engine loads and can be asked: often",
        ),
        pytest.param(
            Observed(
                engines=seen.engines(ready=0),
                routers=seen.routers(ready=0),
                pods=(seen.engine(0, **pod_objects.waiting("ContainerCreating")),),
            ),
            10,
            id="no pod can be asked: Kubernetes tells when one can",
        ),
        pytest.param(
            seen.starting(
                seen.engine(0, **pod_objects.fetching()),
                fetches={"chat-engine-0": FetchReport("Downloading", "", 40)},
            ),
            5,
            id="a download: the numbers change with each look",
        ),
        pytest.param(
            seen.starting(seen.engine(0, **pod_objects.fetching())),
            1,
            id="a download that hasn't said anything yet",
        ),
        pytest.param(
            seen.starting(seen.engine(0, **pod_objects.crashed(65))),
            10,
            id="somebody has to act: no hurry",
        ),
    ],
)
def test_the_next_look_is_in(observed: Observed, seconds: float) -> None:
    dep = deployments.parsed({"replicas": 2})
    verdicts = readiness.decide_conditions(dep, observed, seen.ADMITTED)
    assert resync.decide_resync(verdicts, observed, INTERVALS) == seconds

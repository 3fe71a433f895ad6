import deployments
import observations as seen
import pod_objects
import pytest

from rwkv_operator.api.observed import Event, Foreign, Observed, Refused
from rwkv_operator.decide import readiness
from rwkv_operator.decide.workloads import decide_progressing

DEP = deployments.parsed({"replicas": 2})


def test_an_engine_that_is_to_go_is_scaling_and_no_rollout() -> None:
    going = seen.serving(engines=seen.engines(pods=3, updated=2))
    condition = decide_progressing(DEP, going)
    assert (condition.status, condition.reason) == ("True", "Scaling")
    assert condition.message == "3 engine pods, 2 wanted"


def test_a_router_that_is_to_go_after_its_successor_is_a_rollout() -> None:
    going = seen.serving(routers=seen.routers(pods=3, updated=2))
    assert decide_progressing(DEP, going).reason == "RollingOut"


@pytest.mark.parametrize(
    ("observed", "kind", "status", "reason", "text"),
    [
        pytest.param(
            seen.serving(engines=seen.engines(current=False)),
            "Progressing",
            "True",
            "Applying",
            "engines",
            id="the controller hasn't seen the new generation",
        ),
        pytest.param(
            seen.serving(engines=seen.engines(updated=1)),
            "Progressing",
            "True",
            "RollingOut",
            "1 of 2 engines",
            id="one engine runs the former template",
        ),
        pytest.param(
            seen.serving(pods=(seen.engine(0, seen.OLD_REVISION), seen.engine(1))),
            "Progressing",
            "True",
            "RollingOut",
            "engines run the current template",
            id="an old pod is seen although the counts are fine",
        ),
        pytest.param(
            seen.serving(engines=seen.engines(pods=1, updated=1, ready=1)),
            "Progressing",
            "True",
            "Scaling",
            "1 engine pods, 2 wanted",
            id="pods are missing",
        ),
        pytest.param(
            seen.serving(routers=seen.routers(pods=3, updated=3)),
            "Progressing",
            "True",
            "Scaling",
            "3 router pods, 2 wanted",
            id="pods are too many",
        ),
        pytest.param(
            seen.serving(engines=seen.engines(ready=1)),
            "Degraded",
            "True",
            "FewerReplicas",
            "1 of 2 engines",
            id="an engine is missing while the other serves",
        ),
        pytest.param(
            seen.starting(seen.engine(0, **pod_objects.waiting("ContainerCreating"))),
            "Degraded",
            "False",
            "AsSpecified",
            "",
            id="a first start isn't degraded",
        ),
        pytest.param(
            seen.serving(foreign=(Foreign("Service", "chat", "Deployment web"),)),
            "Degraded",
            "True",
            "NameTaken",
            "Service chat exists and is controlled by Deployment web",
            id="a foreign object is told with its owner",
        ),
        pytest.param(
            seen.serving(refused=(Refused("StatefulSet", "chat-engine", "forbidden"),)),
            "Degraded",
            "True",
            "ApplyRefused",
            "StatefulSet chat-engine was refused: forbidden",
            id="a refused child is told with the API server's words",
        ),
        pytest.param(
            seen.starting(
                engines=seen.engines(pods=0, updated=0, ready=0),
                events=(Event("StatefulSet", "chat-engine", "FailedCreate", "exceeded quota"),),
            ),
            "Degraded",
            "True",
            "FailedCreate",
            "StatefulSet chat-engine: exceeded quota",
            id="pods that may not be made",
        ),
        pytest.param(
            seen.serving(engines=seen.engines(ready=0)),
            "Available",
            "False",
            "NoReadyEngine",
            "",
            id="no engine, no service",
        ),
        pytest.param(
            seen.serving(routers=seen.routers(ready=0)),
            "Available",
            "False",
            "NoReadyRouter",
            "",
            id="no router, no service",
        ),
    ],
)
def test_what_the_workloads_lack_is_told_and_keeps_it_from_ready(
    observed: Observed, kind: str, status: str, reason: str, text: str
) -> None:
    conditions = readiness.decide_conditions(DEP, observed, seen.ADMITTED)
    verdicts = {verdict.type: verdict for verdict in conditions}
    assert (verdicts[kind].status, verdicts[kind].reason) == (status, reason)
    assert text in verdicts[kind].message
    if kind != "Degraded" or status == "True":
        assert verdicts["Ready"].status == "False"

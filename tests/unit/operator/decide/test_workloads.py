import deployments
import observations as seen

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

import pytest

from rwkv_operator.api import observed
from rwkv_operator.api.observed import ModelReport, StoreReport, Workload


def test_a_workload_without_status_has_not_been_seen_by_its_controller() -> None:
    obj = {"metadata": {"name": "chat-engine", "generation": 1}, "spec": {"replicas": 2}}
    assert observed.parse_workload(obj) == Workload("chat-engine", 2, False, 0, 0, 0)


def test_a_workload_is_current_when_its_newest_generation_was_seen() -> None:
    obj = {
        "metadata": {"name": "chat-engine", "generation": 3},
        "spec": {"replicas": 2},
        "status": {
            "observedGeneration": 3,
            "replicas": 2,
            "readyReplicas": 1,
            "updatedReplicas": 2,
            "updateRevision": "rev-2",
        },
    }
    assert observed.parse_workload(obj) == Workload("chat-engine", 2, True, 2, 1, 2, "rev-2")
    obj["metadata"]["generation"] = 4
    assert not observed.parse_workload(obj).current


def test_a_deployment_that_cannot_make_pods_says_why() -> None:
    condition = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    obj = {"metadata": {"name": "r"}, "spec": {}, "status": {"conditions": [condition]}}
    assert observed.parse_workload(obj).refused == "exceeded quota"


def test_an_engine_reports_before_the_weights_are_there() -> None:
    store = {"kind": "perPod", "ok": True, "reason": "PerPod", "message": ""}
    report = observed.parse_engine_report(
        {"phase": "LoadingModel", "message": "", "percent": 40, "elapsed_s": 1.5},
        {"version": 1, "model": None, "store": store},
    )
    assert (report.phase, report.percent, report.model) == ("LoadingModel", 40, None)
    assert report.store == StoreReport(True, "PerPod", "")


def test_an_engine_reports_its_model() -> None:
    model = {"digest": "sha256:1", "stateBytes": 10, "vocabSize": 320, "dtype": "float32"}
    report = observed.parse_engine_report({"phase": "Ready"}, {"model": model})
    assert report.model == ModelReport("sha256:1", 10, 320)


@pytest.mark.parametrize(
    ("progress", "report"),
    [({}, {}), ({"phase": "Ready"}, {"model": {"digest": "x"}}), ({"phase": "x"}, {"store": {}})],
)
def test_what_is_no_report_raises(progress: dict, report: dict) -> None:
    with pytest.raises(KeyError):
        observed.parse_engine_report(progress, report)

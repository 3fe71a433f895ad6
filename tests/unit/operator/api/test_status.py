import deployments
import pytest

from rwkv_operator.api import status
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.observed import (
    EngineReport,
    FetchReport,
    ModelReport,
    Observed,
    StatesReport,
    Workload,
)

NOW = "2026-01-02T00:00:00Z"
VERDICTS = (Condition("Ready", "True", "Ready", "m"),)
ENGINES = Workload("chat-engine", 2, True, 2, 1, 2, "rev-2")


def build(observed: Observed, stored: dict | None = None, **spec: object) -> dict:
    dep = deployments.parsed({"replicas": 2, **spec})
    return status.build_status(dep, observed, VERDICTS, stored or {}, NOW, "cluster.local")


def test_the_status_says_everything_that_the_columns_and_the_scale_need() -> None:
    report = EngineReport("Ready", "", model=ModelReport("sha256:1", 10, 320))
    observed = Observed(
        stack=deployments.cpu_stack(), engines=ENGINES, reports={"chat-engine-0": report}
    )
    found = build(observed)
    assert [entry["type"] for entry in found.pop("conditions")] == ["Ready"]
    assert found == {
        "observedGeneration": 1,
        "ready": "1/2",
        "replicas": 2,
        "readyReplicas": 1,
        "selector": "serving.rwkv.dev/component=engine,serving.rwkv.dev/deployment=chat",
        "url": "http://chat.talk.svc.cluster.local",
        "model": {"name": "chat", "digest": "sha256:1", "stateBytes": 10, "vocabSize": 320},
        "state": {"store": "perPod"},
        "stack": {"name": "cpu", "image": deployments.cpu_stack().engine_image},
    }


@pytest.mark.parametrize(
    ("store", "count", "size"),
    [
        ({"perPod": {}}, 5, 500),
        ({"ephemeral": {}}, 5, 500),
        ({"persistentVolumeClaim": {"claimName": "states"}}, 3, 300),
    ],
)
def test_states_of_all_engines_are_counted_once(store: dict, count: int, size: int) -> None:
    reports = {
        f"chat-engine-{number}": EngineReport("Ready", "", states=StatesReport(*told))
        for number, told in enumerate([(3, 300), (2, 200)])
    }
    reports["chat-engine-2"] = EngineReport("Ready", "")
    found = build(Observed(reports=reports), state={"store": store})["state"]
    assert found == {"store": next(iter(store)), "count": count, "bytes": size}


def test_the_count_of_states_stays_known_while_no_engine_answers() -> None:
    stored = {"state": {"store": "perPod", "count": 3, "bytes": 300}}
    assert build(Observed(), stored)["state"] == stored["state"]


def test_before_any_child_the_counts_are_zero() -> None:
    found = build(Observed())
    assert (found["ready"], found["replicas"], found["readyReplicas"]) == ("0/2", 0, 0)
    assert "stack" not in found


def test_the_model_stays_known_while_no_engine_answers() -> None:
    stored = {"model": {"name": "old", "digest": "sha256:1", "stateBytes": 10, "vocabSize": 320}}
    assert build(Observed(), stored)["model"] == {**stored["model"], "name": "chat"}


def test_a_download_is_told_as_a_number_while_it_lasts() -> None:
    fetches = {
        "chat-engine-0": FetchReport("Downloading", "", 45),
        "chat-engine-1": FetchReport("Waiting", "", 40),
        "chat-engine-2": FetchReport("Resolving", ""),
    }
    stored = build(Observed(fetches=fetches))
    assert stored["model"] == {"name": "chat", "downloadPercent": 40}
    assert build(Observed(), stored)["model"] == {"name": "chat"}


@pytest.mark.parametrize(
    ("port", "url"),
    [
        (80, "http://chat.talk.svc.cluster.local"),
        (8000, "http://chat.talk.svc.cluster.local:8000"),
    ],
)
def test_the_url_names_the_port_where_it_must(port: int, url: str) -> None:
    assert build(Observed(), service={"port": port})["url"] == url


def test_an_ephemeral_store_is_called_so() -> None:
    found = build(Observed(), state={"store": {"ephemeral": {}}})
    assert found["state"] == {"store": "ephemeral"}


def test_an_unreadable_spec_leaves_the_rest_of_the_status() -> None:
    stored = {"ready": "2/2", "conditions": [], "observedGeneration": 1}
    found = status.build_unreadable_status(2, VERDICTS, stored, NOW)
    assert (found["ready"], found["observedGeneration"]) == ("2/2", 2)
    assert found["conditions"][0]["observedGeneration"] == 2

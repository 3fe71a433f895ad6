import itertools

import pytest

from rwkv_operator.api.events import Note, build_download_notes, build_event, build_notes


def condition(kind: str, status: str, reason: str, message: str = "m") -> dict:
    return {"type": kind, "status": status, "reason": reason, "message": message}


READY = condition("Ready", "True", "Ready")
LOADING = condition("Ready", "False", "Loading")


@pytest.mark.parametrize(
    ("before", "after", "notes"),
    [
        pytest.param([], [LOADING], [], id="a first start says nothing"),
        pytest.param([LOADING], [LOADING], [], id="nothing has changed"),
        pytest.param([LOADING], [READY], [Note("Normal", "Ready", "m")], id="it becomes Ready"),
        pytest.param(
            [READY],
            [LOADING],
            [Note("Warning", "NotReady", "Loading: m")],
            id="it is Ready no longer",
        ),
        pytest.param(
            [condition("Degraded", "False", "AsSpecified")],
            [condition("Degraded", "True", "OOMKilled")],
            [Note("Warning", "OOMKilled", "m")],
            id="a bad turn",
        ),
        pytest.param(
            [condition("Degraded", "True", "OOMKilled", "restarted 3 times")],
            [condition("Degraded", "True", "OOMKilled", "restarted 4 times")],
            [],
            id="the same bad turn again",
        ),
        pytest.param(
            [condition("Degraded", "True", "OOMKilled")],
            [condition("Degraded", "False", "AsSpecified")],
            [Note("Normal", "AsSpecified", "m")],
            id="it is well again",
        ),
        pytest.param(
            [],
            [condition("Admitted", "True", "Admitted")],
            [],
            id="a good start isn't worth an event",
        ),
        pytest.param(
            [],
            [condition("Admitted", "False", "UnknownStack")],
            [Note("Warning", "UnknownStack", "m")],
            id="a refusal is told at once",
        ),
        pytest.param(
            [],
            [condition("ModelLoaded", "False", "Loading")],
            [],
            id="other conditions have no events",
        ),
    ],
)
def test_an_event_is_posted_when(before: list, after: list, notes: list) -> None:
    assert list(build_notes(before, after)) == notes


def downloading(percent: int | None) -> dict:
    model = {} if percent is None else {"downloadPercent": percent}
    loaded = condition("ModelLoaded", "False", "Downloading", f"at {percent}")
    return {"conditions": [READY, loaded], "model": model}


def other(reason: str, status: str = "False") -> dict:
    return {"conditions": [condition("ModelLoaded", status, reason)], "model": {}}


@pytest.mark.parametrize(
    ("before", "after", "notes"),
    [
        pytest.param({}, downloading(None), ["Downloading: at None"], id="it starts"),
        pytest.param(other("Loading"), downloading(3), ["Downloading: at 3"], id="the same, later"),
        pytest.param(downloading(None), downloading(24), [], id="less than a quarter"),
        pytest.param(downloading(24), downloading(25), ["Downloading: at 25"], id="a quarter"),
        pytest.param(downloading(26), downloading(49), [], id="the same quarter"),
        pytest.param(downloading(26), downloading(80), ["Downloading: at 80"], id="two at once"),
        pytest.param(downloading(80), downloading(10), [], id="another pod, further behind"),
        pytest.param(
            downloading(90),
            other("Loading"),
            ["Downloaded: the model is downloaded and checked"],
            id="it is there",
        ),
        pytest.param(
            downloading(90),
            other("Loaded", "True"),
            ["Downloaded: the model is downloaded and checked"],
            id="it is loaded already",
        ),
        pytest.param(downloading(90), other("DownloadFailed"), [], id="Degraded tells the rest"),
        pytest.param(other("Loading"), other("Loaded", "True"), [], id="nothing was downloaded"),
    ],
)
def test_a_download_is_told_of_at_its_quarters(before: dict, after: dict, notes: list) -> None:
    found = build_download_notes(before, after)
    assert [f"{note.reason}: {note.message}" for note in found] == notes
    assert {note.type for note in found} <= {"Normal"}


def test_a_download_of_an_hour_posts_few_events() -> None:
    states = [other("Loading"), *map(downloading, [None, *range(101), 100, 100]), other("Loading")]
    notes = [n for pair in itertools.pairwise(states) for n in build_download_notes(*pair)]
    assert [note.message for note in notes][:-1] == ["at None", "at 25", "at 50", "at 75", "at 100"]
    assert notes[-1].reason == "Downloaded"


def test_an_event_points_at_its_deployment_and_fits_the_api() -> None:
    metadata = {"name": "chat", "namespace": "talk", "uid": "u", "resourceVersion": "7"}
    subject = {"kind": "RWKVDeployment", "metadata": metadata}
    event = build_event(subject, Note("Warning", "OOMKilled", "x" * 2000), "now", "abc")
    assert event["metadata"] == {"name": "chat.abc", "namespace": "talk"}
    assert event["involvedObject"] == {
        "apiVersion": "serving.rwkv.dev/v1alpha1",
        "kind": "RWKVDeployment",
        **metadata,
    }
    assert len(event["message"]) == 1024


def test_an_event_about_an_object_of_no_namespace_lies_in_the_default_one() -> None:
    subject = {"kind": "RWKVHardwareStack", "metadata": {"name": "cpu", "uid": "u"}}
    event = build_event(subject, Note("Warning", "CatalogueDiffers", "x"), "now", "abc")
    assert event["metadata"] == {"name": "cpu.abc", "namespace": "default"}
    assert "namespace" not in event["involvedObject"]

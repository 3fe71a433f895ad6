import pytest

from rwkv_operator.api.events import Note, build_event, build_notes


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


def test_an_event_points_at_its_deployment_and_fits_the_api() -> None:
    subject = {
        "metadata": {"name": "chat", "namespace": "talk", "uid": "u", "resourceVersion": "7"}
    }
    event = build_event(subject, Note("Warning", "OOMKilled", "x" * 2000), "now", "abc")
    assert event["metadata"] == {"name": "chat.abc", "namespace": "talk"}
    assert event["involvedObject"]["uid"] == "u"
    assert len(event["message"]) == 1024

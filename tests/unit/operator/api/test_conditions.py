from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition, merge

BEFORE = "2026-01-01T00:00:00Z"
NOW = "2026-01-02T00:00:00Z"


def stored(status: str) -> dict:
    return {
        "type": "Ready",
        "status": status,
        "reason": "Loading",
        "message": "1 of 2",
        "observedGeneration": 1,
        "lastTransitionTime": BEFORE,
    }


def test_the_time_is_kept_while_the_status_stays() -> None:
    (entry,) = merge([stored("False")], [Condition("Ready", "False", "Probing", "x")], 2, NOW)
    assert entry == {
        "type": "Ready",
        "status": "False",
        "reason": "Probing",
        "message": "x",
        "observedGeneration": 2,
        "lastTransitionTime": BEFORE,
    }


def test_a_new_status_has_a_new_time() -> None:
    (entry,) = merge([stored("False")], [Condition("Ready", "True", "Ready", "x")], 1, NOW)
    assert entry["lastTransitionTime"] == NOW


def test_conditions_that_are_no_longer_known_go() -> None:
    old = {**stored("True"), "type": "Outdated"}
    kept = merge([old], [Condition("Ready", "True", "Ready", "x")], 1, NOW)
    assert [entry["type"] for entry in kept] == ["Ready"]


def test_every_type_documents_its_reasons() -> None:
    assert tuple(conditions.REASONS) == conditions.TYPES
    for reasons in conditions.REASONS.values():
        for reason, meaning in reasons.items():
            assert reason.isalnum() and reason[0].isupper()
            assert meaning and not meaning.endswith(".")

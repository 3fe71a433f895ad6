import copy
from typing import Any

import deployments
import pytest

from rwkv_operator.api.observed import Foreign
from rwkv_operator.decide.plan import Apply, Delete, decide_plan, key_of
from rwkv_operator.manifests import children

DEP = deployments.parsed({"replicas": 2})
DESIRED = children.build_children(DEP, deployments.context())
OTHER = {"kind": "Deployment", "name": "web", "uid": "other", "controller": True}


def live() -> dict[tuple[str, str], dict[str, Any]]:
    """Every child as it was applied."""
    objects = {key_of(obj): copy.deepcopy(obj) for obj in DESIRED}
    for index, obj in enumerate(objects.values()):
        obj["metadata"]["uid"] = f"uid-{index}"
        obj["metadata"]["resourceVersion"] = "1"
    return objects


def test_nothing_is_written_where_all_is_as_wanted() -> None:
    plan = decide_plan(DESIRED, live(), DEP.uid)
    assert (plan.applies, plan.deletes, plan.foreign, plan.secrets) == ((), (), (), False)


def test_all_is_made_in_order_where_nothing_is() -> None:
    plan = decide_plan(DESIRED, {}, DEP.uid)
    assert [apply.desired for apply in plan.applies] == DESIRED
    assert plan.secrets


def test_only_what_differs_is_written_and_the_field_is_named() -> None:
    found = live()
    found["Service", "chat"]["spec"]["ports"][0]["targetPort"] = 9999
    plan = decide_plan(DESIRED, found, DEP.uid)
    (apply,) = plan.applies
    assert key_of(apply.desired) == ("Service", "chat")
    assert apply.uid == found["Service", "chat"]["metadata"]["uid"]
    assert apply.paths == ("spec.ports[80,TCP].targetPort",)
    assert not plan.secrets


def test_an_annotation_of_somebody_else_is_left_alone() -> None:
    found = live()
    found["StatefulSet", "chat-engine"]["metadata"]["annotations"]["team"] = "nlp"
    assert decide_plan(DESIRED, found, DEP.uid).applies == ()


@pytest.mark.parametrize(
    ("owners", "owner"),
    [
        ([], "nobody (it has no controller)"),
        ([OTHER], "Deployment web"),
        (
            [{**OTHER, "kind": "RWKVDeployment", "name": "chat", "uid": "of-a-former-chat"}],
            "RWKVDeployment chat",
        ),
        ([{"kind": "RWKVDeployment", "name": "chat", "uid": DEP.uid}], None),
    ],
)
def test_a_foreign_object_is_never_touched_and_its_owner_is_named(
    owners: list[dict], owner: str | None
) -> None:
    found = live()
    found["Service", "chat"]["metadata"]["ownerReferences"] = owners
    found["Service", "chat"]["spec"]["type"] = "NodePort"
    plan = decide_plan(DESIRED, found, DEP.uid)
    assert plan.applies == plan.deletes == ()
    assert plan.foreign == (Foreign("Service", "chat", owner or "nobody (it has no controller)"),)


def test_a_child_that_is_no_longer_wanted_goes() -> None:
    smaller = deployments.parsed({"replicas": 1})
    desired = children.build_children(smaller, deployments.context())
    budget = live()["PodDisruptionBudget", "chat-engine"]
    plan = decide_plan(desired, live(), DEP.uid)
    assert plan.deletes == (
        Delete("PodDisruptionBudget", "chat-engine", budget["metadata"]["uid"]),
    )


def test_no_pod_is_made_that_would_mount_a_strangers_configuration() -> None:
    taken = live()["ConfigMap", "chat-router"]
    taken["metadata"]["ownerReferences"] = []
    plan = decide_plan(DESIRED, {("ConfigMap", "chat-router"): taken}, DEP.uid)
    made = {apply.desired["kind"] for apply in plan.applies}
    assert "Service" in made and not made & {"StatefulSet", "Deployment"}
    assert not plan.secrets


def test_a_foreign_object_with_our_label_stays() -> None:
    found = live()
    stranger = copy.deepcopy(found["Service", "chat"])
    stranger["metadata"] |= {"name": "chat-mine", "ownerReferences": []}
    found["Service", "chat-mine"] = stranger
    plan = decide_plan(DESIRED, found, DEP.uid)
    assert plan.deletes == plan.foreign == ()


def test_what_is_going_away_is_waited_for() -> None:
    found = live()
    going = found["StatefulSet", "chat-engine"]
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    going["spec"]["replicas"] = 7
    assert decide_plan(DESIRED, found, DEP.uid).applies == ()


def test_secrets_are_made_again_only_with_a_workload() -> None:
    found = live()
    del found["ConfigMap", "chat-router"]
    assert not decide_plan(DESIRED, found, DEP.uid).secrets
    del found["Deployment", "chat-router"]
    plan = decide_plan(DESIRED, found, DEP.uid)
    assert plan.secrets
    assert all(isinstance(apply, Apply) and apply.uid is None for apply in plan.applies)

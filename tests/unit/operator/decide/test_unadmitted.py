"""A deployment that served before it was no longer admitted: nothing of it is written then."""

from typing import Any

import deployments
import observations as seen

from rwkv_operator.api.conditions import Condition
from rwkv_operator.decide import readiness

REFUSED = Condition("Admitted", "False", "NoMatchingNode", "no node has a label of the stack")


def decide(replicas: int, **changes: Any) -> dict[str, Condition]:
    dep = deployments.parsed({"replicas": replicas})
    observed = seen.serving(config_hash=None, **changes)
    verdicts = readiness.decide_conditions(dep, observed, REFUSED)
    return {verdict.type: verdict for verdict in verdicts}


def test_what_runs_is_told_as_it_is() -> None:
    verdicts = decide(2)
    assert {kind: (v.status, v.reason) for kind, v in verdicts.items()} == {
        "Admitted": ("False", "NoMatchingNode"),
        "ModelLoaded": ("True", "Loaded"),
        "StateStoreReady": ("True", "PerPod"),
        "RouterReady": ("True", "Routing"),
        "Progressing": ("False", "Settled"),
        "Degraded": ("False", "AsSpecified"),
        "Available": ("True", "Serving"),
        "Ready": ("False", "NoMatchingNode"),
    }


def test_a_change_is_not_said_to_be_on_its_way() -> None:
    progressing = decide(3)["Progressing"]
    assert (progressing.status, progressing.reason) == ("False", "NotAdmitted")
    assert "until the deployment is admitted" in progressing.message

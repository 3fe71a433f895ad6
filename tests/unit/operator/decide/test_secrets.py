from typing import Any

import deployments
import observations as seen
import pod_objects
import pytest

from rwkv_operator.api.observed import RouterReport
from rwkv_operator.api.pods import Pod, parse_pod
from rwkv_operator.decide import secrets


def scheduled(**status: Any) -> Pod:
    """An engine pod with a node."""
    obj = pod_objects.pod("chat-engine-0", "engine", **status)
    return parse_pod({**obj, "spec": {"nodeName": "node-a"}})


@pytest.mark.parametrize(
    ("pod", "awaited"),
    [
        pytest.param(scheduled(), True, id="its volumes aren't mounted yet"),
        pytest.param(
            seen.router(0, **pod_objects.waiting("CreateContainerConfigError", "no secret")),
            True,
            id="a variable is missing",
        ),
        pytest.param(seen.engine(0), False, id="it is ready"),
        pytest.param(seen.engine(0, phase="Pending"), False, id="it has no node yet"),
        pytest.param(scheduled(**pod_objects.loading()), False, id="it runs"),
        pytest.param(
            scheduled(**pod_objects.waiting("ImagePullBackOff")), False, id="it fails otherwise"
        ),
    ],
)
def test_secrets_are_awaited_by_a_pod_that_may_miss_one(pod: Pod, awaited: bool) -> None:
    assert secrets.are_awaited([seen.engine(1), pod]) is awaited


def test_keys_are_missing_when_a_router_has_none() -> None:
    without = RouterReport("hash-1", True, "the Secret is missing", "InvalidAPIKeys")
    assert secrets.are_keys_missing([seen.ROUTER, without])
    assert not secrets.are_keys_missing([seen.ROUTER])


@pytest.mark.parametrize(
    ("created", "live", "may"),
    [
        ("2026-01-02T00:00:00Z", {}, True),
        ("2026-01-01T23:59:10Z", {}, True),
        ("2026-01-01T23:58:00Z", {}, False),
        ("2026-01-02T00:00:00Z", {("Service", "chat"): {}}, False),
        (None, {}, False),
    ],
)
def test_secrets_may_be_a_former_deployments_when_this_one_is_new(
    created: str | None, live: dict[Any, Any], may: bool
) -> None:
    obj = deployments.raw()
    obj["metadata"]["creationTimestamp"] = created
    assert secrets.may_be_anothers(obj, live, "2026-01-02T00:00:00Z") is may

from typing import Any

import deployments
import observations as seen
import pod_objects
import pytest

from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.observed import (
    EngineReport,
    Event,
    Observed,
    RouterReport,
    StoreReport,
)
from rwkv_operator.decide import readiness

CRASH_SAID = {
    "reason": "ModelInvalid",
    "message": "model.safetensors: blocks.0.ffn.key.weight",
    "found": "384x64",
    "wanted": "512x64",
}


def decide(observed: Observed, admitted: Condition = seen.ADMITTED, **spec: Any) -> dict:
    dep = deployments.parsed({"replicas": 2, **spec})
    verdicts = readiness.decide_conditions(dep, observed, admitted)
    assert tuple(verdict.type for verdict in verdicts) == conditions.TYPES
    return {verdict.type: verdict for verdict in verdicts}


def store_report(reason: str, ok: bool = False) -> EngineReport:
    return EngineReport("Ready", "", store=StoreReport(ok, reason, "/var/lib/rwkv/state: said no"))


def test_when_everything_runs_all_conditions_say_so() -> None:
    verdicts = decide(seen.serving())
    assert {kind: (v.status, v.reason) for kind, v in verdicts.items()} == {
        "Admitted": ("True", "Admitted"),
        "ModelLoaded": ("True", "Loaded"),
        "StateStoreReady": ("True", "PerPod"),
        "RouterReady": ("True", "Routing"),
        "Progressing": ("False", "Settled"),
        "Degraded": ("False", "AsSpecified"),
        "Available": ("True", "Serving"),
        "Ready": ("True", "Ready"),
    }
    assert "sha256:1" in verdicts["ModelLoaded"].message


@pytest.mark.parametrize(
    ("observed", "kind", "status", "reason", "text"),
    [
        pytest.param(
            seen.starting(seen.engine(0, **pod_objects.loading()), engines=seen.engines(ready=0)),
            "ModelLoaded",
            "False",
            "Loading",
            "0 of 2 engines have loaded the model; chat-engine-0: starting",
            id="an engine that hasn't reported is starting",
        ),
        pytest.param(
            seen.starting(
                seen.engine(0, **pod_objects.loading()),
                reports={"chat-engine-0": EngineReport("LoadingModel", "weights", 40)},
            ),
            "ModelLoaded",
            "False",
            "Loading",
            "chat-engine-0: LoadingModel 40%, weights",
            id="an engine tells how far it is",
        ),
        pytest.param(
            seen.starting(seen.engine(0, **pod_objects.crashed(65, said=CRASH_SAID))),
            "ModelLoaded",
            "False",
            "ModelInvalid",
            "blocks.0.ffn.key.weight (found 384x64, wanted 512x64)",
            id="a wrong tensor is named with both shapes",
        ),
        pytest.param(
            seen.serving(pods=(seen.engine(0), seen.engine(1, seen.OLD_REVISION))),
            "ModelLoaded",
            "False",
            "Loading",
            "1 of 2",
            id="an old pod doesn't count for the new template",
        ),
        pytest.param(
            seen.serving(reports={"chat-engine-0": seen.REPORT}),
            "StateStoreReady",
            "Unknown",
            "Probing",
            "1 of 2",
            id="a store that one engine hasn't probed is unknown",
        ),
        pytest.param(
            seen.serving(
                reports={"chat-engine-0": seen.REPORT, "chat-engine-1": store_report("StoreDenied")}
            ),
            "StateStoreReady",
            "False",
            "StoreDenied",
            "chat-engine-1: /var/lib/rwkv/state: said no",
            id="one denied store is enough",
        ),
        pytest.param(
            seen.serving(pods=(seen.engine(0), seen.engine(1))),
            "RouterReady",
            "False",
            "RouterStarting",
            "no router pod",
            id="no router pod is ready",
        ),
        pytest.param(
            seen.serving(routers_seen={"chat-router-0": seen.ROUTER}),
            "RouterReady",
            "Unknown",
            "RouterUnreachable",
            "chat-router-1",
            id="a router that doesn't answer is unknown, not bad",
        ),
        pytest.param(
            seen.serving(config_hash="hash-2"),
            "RouterReady",
            "False",
            "ConfigPending",
            "chat-router-0, chat-router-1",
            id="routers that still run the former config",
        ),
        pytest.param(
            seen.serving(
                routers_seen={
                    "chat-router-0": seen.ROUTER,
                    "chat-router-1": RouterReport(
                        "hash-0", True, "line 7: unknown keyword", "ConfigRefused"
                    ),
                }
            ),
            "RouterReady",
            "False",
            "ConfigRefused",
            "chat-router-1: line 7: unknown keyword",
            id="a refused config is told with HAProxy's words",
        ),
        pytest.param(
            seen.serving(
                routers_seen={
                    "chat-router-0": RouterReport(
                        "hash-1", True, "key `acme` is empty", "InvalidAPIKeys"
                    ),
                    "chat-router-1": seen.ROUTER,
                }
            ),
            "RouterReady",
            "False",
            "InvalidAPIKeys",
            "chat-router-0: key `acme` is empty",
            id="a bad API key is told",
        ),
        pytest.param(
            seen.serving(
                routers_seen={
                    f"chat-router-{index}": RouterReport("hash-1", index == 0) for index in (0, 1)
                }
            ),
            "RouterReady",
            "False",
            "NoReadyEngine",
            "chat-router-1",
            id="one blind router is enough",
        ),
    ],
)
def test_a_condition_tells(
    observed: Observed, kind: str, status: str, reason: str, text: str
) -> None:
    verdicts = decide(observed)
    assert (verdicts[kind].status, verdicts[kind].reason) == (status, reason)
    assert text in verdicts[kind].message
    assert verdicts["Ready"].status == "False"


CLAIM = {"persistentVolumeClaim": {"claimName": "states"}}
S3 = {"s3": {"bucket": "states", "credentialsSecretRef": {"name": "cloud"}}}
NO_CLAIM = 'persistentvolumeclaim "states" not found'
NO_SECRET = 'MountVolume.SetUp failed for volume "s3" : secret "cloud" not found'


def test_a_shared_store_says_what_is_shared() -> None:
    verdict = decide(seen.serving(), state={"store": CLAIM})["StateStoreReady"]
    assert (verdict.status, verdict.reason) == ("True", "Shared")
    assert "PersistentVolumeClaim states" in verdict.message
    verdict = decide(seen.serving(), state={"store": S3})["StateStoreReady"]
    assert "bucket states at Amazon S3, us-east-1" in verdict.message


def test_a_claim_for_states_that_is_missing_is_named() -> None:
    waiting = seen.starting(seen.engine(0, **pod_objects.unscheduled(NO_CLAIM)))
    verdict = decide(waiting, state={"store": CLAIM})["StateStoreReady"]
    assert (verdict.status, verdict.reason) == ("False", "StoreUnreachable")
    assert "PersistentVolumeClaim states not found in namespace talk" in verdict.message
    assert decide(waiting)["StateStoreReady"].status == "Unknown"


def test_a_secret_for_a_bucket_that_is_missing_is_named() -> None:
    event = Event("Pod", "chat-engine-0", "FailedMount", NO_SECRET)
    waiting = seen.starting(seen.engine(0, **pod_objects.loading()), events=(event,))
    verdict = decide(waiting, state={"store": S3})["StateStoreReady"]
    assert (verdict.status, verdict.reason) == ("False", "StoreDenied")
    assert "Secret cloud in namespace talk needs the entries accessKeyId" in verdict.message
    assert NO_SECRET in verdict.message


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        pytest.param(
            seen.starting(seen.engine(0, **pod_objects.crashed(137, "OOMKilled"))),
            "OOMKilled",
            id="a killed pod explains more than a model that isn't loaded",
        ),
        pytest.param(
            seen.starting(seen.engine(0, **pod_objects.crashed(65, said=CRASH_SAID))),
            "ModelInvalid",
            id="an invalid model explains more than the crash that it leads to",
        ),
        pytest.param(
            seen.serving(
                pods=(
                    seen.engine(0),
                    seen.engine(1),
                    seen.router(0, **pod_objects.crashed(1, init=True)),
                ),
                routers=seen.routers(ready=0),
            ),
            "CrashLoopBackOff",
            id="a crashing router explains more than a router that starts",
        ),
        pytest.param(
            seen.serving(
                engines=seen.engines(updated=1),
                pods=(
                    seen.engine(0, seen.OLD_REVISION),
                    seen.engine(1, **pod_objects.waiting("ImagePullBackOff", "not found")),
                    seen.router(0),
                    seen.router(1),
                ),
            ),
            "ImagePullBackOff",
            id="old pods serve while the update is stuck",
        ),
        pytest.param(
            seen.starting(seen.engine(0, **pod_objects.loading())),
            "Loading",
            id="while all just start, the first step that isn't done",
        ),
        pytest.param(
            seen.serving(engines=seen.engines(current=False)),
            "Applying",
            id="a new generation that only old pods serve",
        ),
    ],
)
def test_ready_has_the_reason_that_explains_most(observed: Observed, reason: str) -> None:
    verdicts = decide(observed)
    assert (verdicts["Ready"].status, verdicts["Ready"].reason) == ("False", reason)


def test_a_missing_claim_of_the_model_is_a_missing_model() -> None:
    message = '0/1 nodes are available: persistentvolumeclaim "models" not found.'
    observed = seen.starting(seen.engine(0, **pod_objects.unscheduled(message)))
    source = {"persistentVolumeClaim": {"claimName": "models", "path": "tiny"}}
    verdicts = decide(observed, model={"source": source})
    assert verdicts["ModelLoaded"].reason == "ModelNotFound"
    assert "PersistentVolumeClaim models not found in namespace talk" in (
        verdicts["ModelLoaded"].message
    )
    assert (verdicts["Degraded"].status, verdicts["Degraded"].reason) == (
        "True",
        "FailedScheduling",
    )
    assert verdicts["Ready"].reason == "ModelNotFound"


def test_an_ephemeral_store_says_what_is_lost_and_when() -> None:
    ready = decide(seen.serving(), state={"store": {"ephemeral": {}}})["StateStoreReady"]
    assert (ready.status, ready.reason) == ("True", "Ephemeral")
    assert "lost when the pod is deleted, evicted, rescheduled" in ready.message


def test_before_admission_nothing_else_is_claimed() -> None:
    refused = Condition("Admitted", "False", "UnknownStack", "no stack tpu-v9")
    verdicts = decide(Observed(), refused)
    assert verdicts["Ready"].reason == "UnknownStack"
    assert verdicts["Ready"].message == "no stack tpu-v9"
    assert {v.status for v in verdicts.values()} == {"False", "Unknown"}


def test_pods_of_a_deployment_whose_stack_has_gone_are_still_told_of() -> None:
    refused = Condition("Admitted", "False", "UnknownStack", "no stack cpu")
    verdicts = decide(seen.serving(), refused)
    assert verdicts["Available"].status == "True"
    assert (verdicts["Ready"].status, verdicts["Ready"].reason) == ("False", "UnknownStack")


def test_scaled_to_zero_nothing_serves_and_nothing_is_wrong() -> None:
    observed = seen.serving(
        engines=seen.engines(wanted=0, pods=0, ready=0, updated=0),
        pods=(seen.router(0), seen.router(1)),
        reports={},
        routers_seen={f"chat-router-{i}": RouterReport("hash-1", False) for i in (0, 1)},
    )
    verdicts = decide(observed, replicas=0)
    assert verdicts["Degraded"].status == "False"
    assert verdicts["Progressing"].status == "False"
    assert (verdicts["Ready"].status, verdicts["Ready"].reason) == ("False", "ScaledToZero")


@pytest.mark.parametrize(
    "observed",
    [
        seen.serving(),
        seen.starting(),
        seen.serving(events=(Event("Pod", "p", "FailedMount", "m"),)),
        seen.serving(engines=None, routers=None, pods=(), reports={}, routers_seen={}),
    ],
)
def test_every_reason_is_documented(observed: Observed) -> None:
    for kind, verdict in decide(observed).items():
        known = set(conditions.REASONS[kind])
        if kind == "Ready":
            known |= {reason for reasons in conditions.REASONS.values() for reason in reasons}
        assert verdict.reason in known

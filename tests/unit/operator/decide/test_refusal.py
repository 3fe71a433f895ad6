from dataclasses import replace
from typing import Any

import deployments
import node_objects
import observations
import pod_objects
import pytest

from rwkv_operator.api.pods import Pod
from rwkv_operator.api.refusal import Refusal, parse_refusal
from rwkv_operator.decide import refusal
from rwkv_operator.manifests import engine

DEP = deployments.parsed({"replicas": 2})
CTX = deployments.context()
TEMPLATE = engine.build_template(DEP, CTX)
KEY = "key-1"
SAID = {
    "reason": "RuntimeMismatch",
    "message": "the container doesn't match its stack",
    "found": {"chip": "none", "cann": "8.5.1"},
    "wanted": {"chip": "Ascend910B3", "cann": "8.5.0"},
}


def statefulset(kept: Refusal | None = None, **status: Any) -> dict[str, Any]:
    """The live StatefulSet, seen by its controller."""
    ctx = replace(CTX, refusal=kept)
    counts = {"observedGeneration": 1, "replicas": 2, "updateRevision": observations.REVISION}
    obj = engine.build_engine(DEP, ctx)
    return {
        **obj,
        "metadata": {**obj["metadata"], "generation": 1},
        "status": {**counts, **status},
    }


def refused(ordinal: int = 0, revision: str = observations.REVISION) -> Pod:
    return observations.engine(ordinal, revision, **pod_objects.crashed(78, said=SAID))


def test_when_nothing_is_ready_a_refusal_is_made_with_found_and_wanted() -> None:
    made = refusal.decide_refusal(KEY, TEMPLATE, statefulset(), [refused(1), refused(0)])
    assert made is not None
    assert (made.key, made.pod) == (KEY, "chat-engine-0")
    assert made.found == "chip: none, cann: 8.5.1"
    assert made.wanted == "chip: Ascend910B3, cann: 8.5.0"


def test_one_that_has_not_started_is_not_waited_for() -> None:
    pending = observations.engine(1, **pod_objects.unscheduled("full"))
    assert refusal.decide_refusal(KEY, TEMPLATE, statefulset(), [refused(0), pending])


@pytest.mark.parametrize(
    ("live", "pods"),
    [
        pytest.param(statefulset(), [refused(0), observations.engine(1)], id="another serves"),
        pytest.param(
            statefulset(),
            [refused(0), observations.engine(1, observations.OLD_REVISION)],
            id="one of the former template serves",
        ),
        pytest.param(
            statefulset(),
            [refused(0), observations.engine(1, **pod_objects.loading())],
            id="another runs and isn't ready, for now or yet",
        ),
        pytest.param(None, [refused()], id="there is no StatefulSet"),
        pytest.param(
            statefulset(), [refused(0, observations.OLD_REVISION)], id="a pod of an older template"
        ),
        pytest.param(
            statefulset(observedGeneration=0), [refused()], id="the controller hasn't seen it yet"
        ),
        pytest.param(
            statefulset(),
            [observations.engine(0, **pod_objects.crashed(70, said={"reason": "EngineFailed"}))],
            id="it failed for another reason",
        ),
        pytest.param(
            statefulset(), [observations.router(0, **pod_objects.crashed(1))], id="a router"
        ),
        pytest.param(statefulset(), [], id="no pods"),
    ],
)
def test_no_refusal_is_made(live: dict[str, Any] | None, pods: list[Pod]) -> None:
    assert refusal.decide_refusal(KEY, TEMPLATE, live, pods) is None


def test_a_changed_template_isnt_judged_by_pods_of_the_one_before() -> None:
    changed = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "terminationGracePeriodSeconds": 1}}
    assert refusal.decide_refusal(KEY, changed, statefulset(), [refused()]) is None


def test_it_holds_while_its_key_is_current_and_no_longer() -> None:
    kept = refusal.decide_refusal(KEY, TEMPLATE, statefulset(), [refused()])
    live = statefulset(kept)
    assert live["spec"]["replicas"] == 0
    # An operator that starts anew knows nothing but the StatefulSet.
    assert refusal.decide_refusal(KEY, TEMPLATE, live, []) == kept
    assert refusal.decide_refusal("key-2", TEMPLATE, live, []) is None


def test_an_annotation_that_cannot_be_read_holds_nothing() -> None:
    live = statefulset()
    for text in ("", "no json", "[]", '{"key": "key-1"}', '"key-1"'):
        live["metadata"]["annotations"] = {"serving.rwkv.dev/refusal": text}
        assert parse_refusal(live) is None


STACK = CTX.stack
NODE = node_objects.parsed()


@pytest.mark.parametrize(
    ("stack", "template", "nodes"),
    [
        pytest.param(replace(STACK, generation=2), TEMPLATE, [NODE], id="the stack"),
        pytest.param(replace(STACK, uid="other"), TEMPLATE, [NODE], id="the stack, made anew"),
        pytest.param(
            STACK,
            engine.build_template(DEP, replace(CTX, stack=replace(STACK, engine_image="new"))),
            [NODE],
            id="the image",
        ),
        pytest.param(
            STACK,
            engine.build_template(deployments.parsed({"engine": {"maxNumSeqs": 2}}), CTX),
            [NODE],
            id="the spec",
        ),
        pytest.param(STACK, TEMPLATE, [], id="a node goes"),
        pytest.param(STACK, TEMPLATE, [NODE, node_objects.parsed("b")], id="a node comes"),
        pytest.param(STACK, TEMPLATE, [node_objects.parsed(labels={"a": "b"})], id="its labels"),
        pytest.param(STACK, TEMPLATE, [node_objects.parsed(bootID="2")], id="it was booted anew"),
        pytest.param(STACK, TEMPLATE, [replace(NODE, uid="2")], id="it was replaced"),
    ],
)
def test_the_key_changes_with(stack: Any, template: dict[str, Any], nodes: list[Any]) -> None:
    before = refusal.refusal_key(STACK, TEMPLATE, [NODE])
    assert refusal.refusal_key(stack, template, nodes) != before


def test_the_key_stays_with_the_number_of_replicas_and_the_order_of_nodes() -> None:
    other = node_objects.parsed("b")
    more = engine.build_template(deployments.parsed({"replicas": 3}), CTX)
    before = refusal.refusal_key(STACK, TEMPLATE, [NODE, other])
    assert refusal.refusal_key(STACK, more, [other, NODE]) == before


def test_a_preflight_that_disagrees_turns_admitted_false() -> None:
    kept = Refusal(KEY, "chat-engine-0", "node-a", "wrong chip", "chip: none", "chip: x")
    verdict = refusal.decide_disagreement(
        observations.ADMITTED, replace(observations.starting(), refusal=kept)
    )
    assert (verdict.status, verdict.reason) == ("False", "RuntimeMismatch")
    assert verdict.message == (
        "chat-engine-0 on node node-a: wrong chip (found chip: none; wanted chip: x)"
    )
    beside = observations.serving(pods=(refused(0), observations.engine(1)))
    told = refusal.decide_disagreement(observations.ADMITTED, beside)
    assert told.reason == "RuntimeMismatch"
    serving = observations.serving()
    assert refusal.decide_disagreement(observations.ADMITTED, serving) == observations.ADMITTED

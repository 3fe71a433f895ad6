"""A conversation goes on from its saved state: at another pod, from every kind of store."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import claims
import pytest
import s3_pod
import state_talk
from kube import condition, wait_for
from world import World, deployment

pytestmark = pytest.mark.cluster

STORES: dict[str, dict[str, Any]] = {
    "shared": {"persistentVolumeClaim": {"claimName": "states"}},
    "bucket": {"s3": s3_pod.STORE},
    "passing": {"ephemeral": {}},
}
SHARED = ("shared", "bucket")


def with_states(name: str, store: dict[str, Any]) -> dict[str, Any]:
    """A small deployment; of two engines where they share their states."""
    obj = deployment(name)
    obj["spec"]["replicas"] = 2 if name in SHARED else 1
    obj["spec"]["hardware"]["resources"] = {"requests": {"cpu": "50m"}}
    obj["spec"]["state"] = {"store": store, "hotBytes": "16Mi"}
    return obj


@pytest.fixture(scope="module")
def stores(world: World) -> Iterator[World]:
    """A deployment for each kind of store but the sample's, all Ready."""
    claims.make_claim(world, "states")
    s3_pod.start(world)
    for name, store in STORES.items():
        world.kube.apply(with_states(name, store))
    for name in STORES:
        world.wait_ready(name)
    yield world
    world.kube.run("delete", "rwkv", *STORES, "--wait=true")
    s3_pod.stop(world)
    world.kube.run("delete", "pvc", "states", "--wait=false")


@pytest.mark.parametrize("name", SHARED)
def test_a_session_goes_on_at_another_engine_with_the_same_tokens(stores: World, name: str) -> None:
    home, other = f"{name}-engine-0", f"{name}-engine-1"
    session = state_talk.at_home(stores, name, home, "kept")
    control = state_talk.at_home(stores, name, home, "control")
    *first, question = state_talk.TEXTS
    for each in (control, session):
        told = state_talk.hold(stores, name, each, tuple(first))
        assert {answer["pod"] for answer in told} == {home}
    expected = state_talk.go_on(stores, name, control, question)
    assert (expected["pod"], expected["state"]["source"]) == (home, "hot")
    assert "Nora" in expected["text"]
    with stores.no_new_pods():
        stores.kube.run("delete", "pod", home, "--wait=true")
        answer = state_talk.go_on(stores, name, session, question)
    assert (answer.get("pod"), answer["state"]["source"]) == (other, "durable"), answer
    assert (answer["text"], answer["tokens"]) == (expected["text"], expected["tokens"])
    assert answer["state"]["parent"] == told[-1]["state"]["ref"]


@pytest.mark.parametrize("name", SHARED)
def test_what_is_in_a_shared_store_is_counted(stores: World, name: str) -> None:
    obj = stores.wait_ready(name)
    assert condition(obj, "StateStoreReady")["reason"] == "Shared"
    looks = itertools.count()

    def counted() -> bool:
        # A deployment that is Ready is looked at every few minutes, or when it changes.
        stores.kube.run("annotate", "rwkv", name, f"look={next(looks)}", "--overwrite")
        state = stores.kube.get("rwkv", name)["status"]["state"]
        return state.get("count", 0) >= 6 and state["bytes"] > 0

    wait_for(counted, f"the states of {name} to be counted", timeout=90, every=1)


def test_a_state_that_has_gone_with_its_pod_is_lost_and_said_so(stores: World) -> None:
    (told,) = state_talk.hold(stores, "passing", "passing", state_talk.TEXTS[:1])
    stores.kube.run("delete", "pod", "passing-engine-0", "--wait=true")
    stores.wait_ready("passing")
    ref = {"ref": told["state"]["ref"]}
    (answer,) = state_talk.ask(
        stores, "passing", state_talk.call("passing", "later", state_talk.TEXTS[1], ref)
    )
    assert (answer.get("status"), answer.get("code")) == (410, "state_lost"), answer


def test_credentials_of_the_bucket_are_nowhere_but_in_the_engines_container(stores: World) -> None:
    kinds = "rwkv,statefulsets,deployments,configmaps,events"
    texts = {"objects": stores.kube.run("get", kinds, "-A", "-o", "yaml")}
    for pod in stores.kube.items("pods", "-l", "serving.rwkv.dev/deployment=bucket"):
        name = pod["metadata"]["name"]
        texts[name] = stores.kube.logs(name, "--all-containers")
        mounts = {
            container["name"]
            for container in pod["spec"]["containers"]
            for mount in container.get("volumeMounts", [])
            if mount["name"] == "s3"
        }
        assert mounts == ({"engine"} if "-engine-" in name else set())
    assert [where for where, text in texts.items() if s3_pod.SECRET_KEY in text] == []

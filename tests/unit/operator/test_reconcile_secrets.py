"""Secrets over several passes: they can't be read, and must not be missing for long."""

import pod_objects
import pytest
from operator_world import World

from rwkv_operator import errors

CREATES = ["create Secret chat-internal", "create Secret chat-api-key"]


def put_pod(world: World, name: str, component: str, **status: object) -> None:
    pod = pod_objects.pod(name, component, "rev-2", **status)
    world.cluster.put({"kind": "Pod", **pod, "spec": {"nodeName": "node-a"}})


async def test_a_secret_that_a_pod_waits_for_is_made_again() -> None:
    world = World()
    await world.look()
    world.serve()
    await world.look()
    del world.cluster.objects["Secret", "chat-internal"]
    await world.look()
    # Nobody is the worse for it, and nobody knows.
    assert world.cluster.writes == []
    put_pod(world, "chat-engine-1", "engine")
    await world.look()
    assert world.cluster.writes[:2] == CREATES
    assert ("Secret", "chat-internal") in world.cluster.objects


async def test_keys_that_no_router_finds_are_made_again() -> None:
    world = World()
    await world.look()
    world.serve()
    await world.look()
    del world.cluster.objects["Secret", "chat-api-key"]
    world.key_problem = "InvalidAPIKeys"
    await world.look()
    assert ("Secret", "chat-api-key") in world.cluster.objects


async def test_keys_of_the_users_own_are_the_users_to_repair() -> None:
    world = World({"auth": {"apiKeysSecretRef": {"name": "mine"}}})
    await world.look()
    world.serve()
    world.key_problem = "InvalidAPIKeys"
    await world.look()
    assert not any("Secret" in write for write in world.cluster.writes)


async def test_made_anew_at_once_it_waits_for_the_former_secrets_to_go() -> None:
    world = World()
    chat = world.cluster.objects["RWKVDeployment", "chat"]
    chat["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    former = {"kind": "Secret", "metadata": {"name": "chat-internal", "namespace": "talk"}}
    world.cluster.put(former)
    for _ in range(2):
        with pytest.raises(errors.NotYet, match="Secret chat-internal may be a former"):
            await world.look()
        assert world.cluster.writes == CREATES[:1]
    del world.cluster.objects["Secret", "chat-internal"]
    await world.look()
    assert world.cluster.writes[:2] == CREATES
    assert "make StatefulSet chat-engine" in world.cluster.writes


async def test_open_deployments_and_those_with_own_keys_get_no_key() -> None:
    for auth in ({"mode": "Open"}, {"apiKeysSecretRef": {"name": "mine"}}):
        world = World({"auth": auth})
        await world.look()
        assert "create Secret chat-internal" in world.cluster.writes
        assert "create Secret chat-api-key" not in world.cluster.writes

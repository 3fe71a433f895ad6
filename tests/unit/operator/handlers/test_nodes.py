"""Which events of nodes and stacks wake anybody, and whom."""

from __future__ import annotations

import asyncio
from typing import Any

import deployments
import node_objects
import pytest
from memory_cluster import MemoryCluster

from rwkv_operator import errors
from rwkv_operator.cluster.nodes import Nodes
from rwkv_operator.handlers import stacks
from rwkv_operator.handlers.nodes import NodeWatch
from rwkv_operator.handlers.queue import WorkQueue
from rwkv_operator.metrics import Metrics
from rwkv_operator.reconcile_stacks import StackKeeper


@pytest.mark.parametrize(
    ("kind", "obj", "wakes"),
    [
        ("MODIFIED", node_objects.node(), False),
        ("MODIFIED", node_objects.node(labels={"a": "b"}), True),
        ("MODIFIED", node_objects.node(devices={"nvidia.com/gpu": 1}), True),
        ("DELETED", node_objects.node(), True),
        ("ADDED", node_objects.node("node-b"), True),
    ],
)
async def test_a_node_wakes_others_only_where_it_fits_differently(
    kind: str, obj: dict[str, Any], wakes: bool
) -> None:
    watch = NodeWatch()
    watch.note(None, node_objects.node())
    watch.changed.clear()
    watch.note(kind, obj)
    assert watch.changed.is_set() is wakes


async def test_a_stacks_own_status_is_no_news() -> None:
    watch = stacks.StackWatch()
    obj = deployments.cpu_stack_object()
    obj["metadata"] |= {"uid": "u", "generation": 1}
    assert watch.note(None, obj) == "cpu"
    assert watch.note("MODIFIED", {**obj, "status": {"matchingNodes": 1}}) is None
    newer = {**obj, "metadata": {**obj["metadata"], "generation": 2}}
    assert watch.note("MODIFIED", newer) == "cpu"
    assert watch.note("DELETED", newer) == "cpu"


async def test_a_changed_node_brings_every_deployment_to_the_queue_with_fresh_nodes() -> None:
    cluster: Any = MemoryCluster(
        {"kind": "RWKVDeployment", **deployments.raw()}, node_objects.node()
    )
    nodes, queue = Nodes(cluster, lambda: 0.0), WorkQueue(Metrics())
    assert len(nodes.all()) == 1
    watch, stack_watch = NodeWatch(), stacks.StackWatch()
    task = asyncio.create_task(stacks.follow_nodes(watch, stack_watch, nodes, cluster, None, queue))
    cluster.put(node_objects.node("node-b"))
    watch.note("ADDED", node_objects.node("node-b"))
    assert await queue.take() == ("talk", "chat")
    assert len(nodes.all()) == 2
    assert stack_watch.changed.is_set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_nodes_are_listed_once_for_many_passes_and_again_when_old() -> None:
    now = [0.0]
    cluster: Any = MemoryCluster(node_objects.node())
    listed = []
    find = cluster.find
    cluster.find = lambda *args: listed.append(args) or find(*args)
    nodes = Nodes(cluster, lambda: now[0], max_age=20.0)
    for _ in range(5):
        nodes.all()
    assert len(listed) == 1
    now[0] = 21.0
    nodes.all()
    nodes.forget()
    nodes.all()
    assert len(listed) == 3


def test_the_keeper_writes_a_stacks_status_once() -> None:
    written: list[Any] = []

    class Stacks(MemoryCluster):
        def apply_status(self, obj: Any, uid: str) -> dict[str, Any]:
            written.append(obj["status"])
            self.objects[obj["kind"], obj["metadata"]["name"]]["status"] = obj["status"]
            return dict(obj)

    bad = deployments.cpu_stack_object()
    bad["metadata"]["name"] = "bad"
    bad["spec"]["vendor"] = "abacus"
    cluster: Any = Stacks(deployments.cpu_stack_object(), bad, node_objects.node())
    keeper = StackKeeper(cluster, Nodes(cluster, lambda: 0.0), lambda: "2026-01-02T00:00:00Z")
    keeper.keep()
    keeper.keep()
    assert [status["matchingNodes"] for status in written] == [1]


def test_a_stack_that_went_meanwhile_is_left_out_and_a_lost_server_is_told() -> None:
    cluster: Any = MemoryCluster(deployments.cpu_stack_object(), node_objects.node())
    keeper = StackKeeper(cluster, Nodes(cluster, lambda: 0.0), lambda: "now")
    for status, raised in ((404, False), (409, False), (500, True)):

        def fail(*_: Any, status: int = status) -> None:
            raise errors.ClusterError("no", status)

        cluster.apply_status = fail
        if raised:
            with pytest.raises(errors.ClusterError):
                keeper.keep()
        else:
            keeper.keep()

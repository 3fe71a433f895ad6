from typing import Any

import pod_objects
import pytest
from memory_cluster import MemoryCluster

from rwkv_operator.cluster import gather


def pods_of_chat(*pods: dict[str, Any]) -> list[str]:
    cluster = MemoryCluster(*({"kind": "Pod", **pod} for pod in pods))
    found = gather.gather_pods(cluster, "talk", "chat")  # type: ignore[arg-type]
    return [pod.name for pod in found]


def test_pods_of_both_workloads_are_found() -> None:
    router = pod_objects.pod("chat-router-x", "router", "hash")
    assert pods_of_chat(pod_objects.pod(), router) == ["chat-engine-0", "chat-router-x"]


@pytest.mark.parametrize(
    "owners",
    [
        [],
        [{"kind": "StatefulSet", "name": "chat-engine"}],
        [{"kind": "StatefulSet", "name": "other-engine", "controller": True}],
        [{"kind": "Job", "name": "chat-engine", "controller": True}],
    ],
    ids=["nobody", "no controller", "another's", "a Job"],
)
def test_a_pod_with_our_label_that_is_somebody_elses_is_not(owners: list[dict[str, Any]]) -> None:
    stranger = pod_objects.pod("stray")
    stranger["metadata"]["ownerReferences"] = owners
    assert pods_of_chat(pod_objects.pod(), stranger) == ["chat-engine-0"]

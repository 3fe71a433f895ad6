"""Deleting leaves nothing of a deployment; uninstalling leaves only the users' objects."""

from __future__ import annotations

import installation
import pytest
from kube import wait_for
from world import World, deployment

pytestmark = pytest.mark.cluster

KINDS = (
    "statefulsets,deployments,replicasets,services,configmaps,secrets,serviceaccounts,pods,"
    "poddisruptionbudgets,networkpolicies,persistentvolumeclaims,endpointslices"
)
STACKS = (installation.ROOT / "crds" / "stacks").glob("*.yaml")
FOREIGN = {"pod/client", "service/kubernetes", "configmap/kube-root-ca.crt"} | {
    "serviceaccount/default",
    "endpointslice.discovery.k8s.io/kubernetes",
    "persistentvolumeclaim/models",
}


def left_of(world: World) -> set[str]:
    """Names in the default namespace that a deployment could have left."""
    return set(world.kube.run("get", KINDS, "-o", "name").split()) - FOREIGN


def test_deleting_the_deployment_removes_every_child_within_30_seconds(chat: World) -> None:
    assert "statefulset.apps/chat-engine" in left_of(chat)
    chat.kube.run("delete", "rwkv", "chat", "--wait=true")
    wait_for(lambda: not left_of(chat), f"every child to go; left: {left_of(chat)}", timeout=30)


def test_uninstalling_leaves_crds_stacks_and_deployments_and_nothing_else(world: World) -> None:
    obj = deployment("kept")
    obj["spec"]["hardware"]["stack"] = "tpu-v9"
    world.kube.apply(obj)
    world.kube.run_helm("uninstall", installation.RELEASE, "-n", installation.NAMESPACE, "--wait")
    place = ["-n", installation.NAMESPACE]
    own = {"configmap/kube-root-ca.crt", "serviceaccount/default"}

    def rest() -> set[str]:
        return set(world.kube.run("get", KINDS, *place, "-o", "name").split()) - own

    wait_for(lambda: not rest(), f"the release's objects to go; left: {rest()}", timeout=60)
    cluster_wide = world.kube.run(
        "get",
        "clusterroles,clusterrolebindings,crds,rwkvstacks,rwkv",
        "-o",
        "name",
    ).split()
    ours = {name for name in cluster_wide if "rwkv" in name}
    assert ours == {
        "customresourcedefinition.apiextensions.k8s.io/rwkvdeployments.serving.rwkv.dev",
        "customresourcedefinition.apiextensions.k8s.io/rwkvhardwarestacks.serving.rwkv.dev",
        *(f"rwkvhardwarestack.serving.rwkv.dev/{path.stem}" for path in STACKS),
        "rwkvdeployment.serving.rwkv.dev/kept",
    }

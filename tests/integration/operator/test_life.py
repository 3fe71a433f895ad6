"""The operator comes and goes; the cluster and the deployments don't depend on it."""

import json
import statistics
import time
from functools import partial
from pathlib import Path

import deployments
import equipment
import kubernetes
import node_objects
import operator_process
import pytest
from kube import Kube, Wanted, wait_condition, wait_for

from rwkv_cluster.apiserver import ApiServer
from rwkv_operator import names
from rwkv_operator.cluster import catalogue
from rwkv_operator.cluster.client import Cluster
from rwkv_operator.metrics import Metrics

pytestmark = pytest.mark.apiserver


def apply_chat(kube: Kube, namespace: str, name: str = "chat") -> None:
    obj = deployments.load(deployments.CRDS / "samples" / "tiny-recall.yaml")
    obj["metadata"] |= {"namespace": namespace, "name": name}
    kube.apply(obj)


def wait_loading(kube: Kube, namespace: str, generation: int = 1) -> None:
    """Wait until a pass over the deployment has come to its end."""
    wanted = Wanted("Ready", "False", "Loading", generation=generation)
    wait_condition(lambda: kube.get("rwkv", "chat", "-n", namespace), wanted)


def kinds(kube: Kube, namespace: str) -> list[str]:
    """Kinds of the children that are there."""
    which = "sts,deploy,svc,cm,sa,pdb,netpol"
    selector = "serving.rwkv.dev/deployment"
    return [item["kind"] for item in kube.items(which, "-n", namespace, "-l", selector)]


def test_without_the_operator_objects_can_be_made_and_removed(kube: Kube, namespace: str) -> None:
    apply_chat(kube, namespace)
    container = {"name": "c", "image": "i"}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    kube.apply({**pod, "metadata": {"name": "bare", "namespace": namespace}})
    kube.run("delete", "rwkv/chat", "pod/bare", "-n", namespace, "--timeout=20s")


@pytest.mark.parametrize("children", [1, 4, 9])
def test_an_operator_that_dies_in_the_middle_of_a_pass_is_followed_by_one_that_finishes(
    kube: Kube,
    apiserver_with_workloads: ApiServer,
    namespace: str,
    tmp_path: Path,
    children: int,
) -> None:
    kubeconfig = apiserver_with_workloads.user(operator_process.USER)
    with operator_process.running(kubeconfig, tmp_path / "first.log") as first:
        made = "rwkv_operator_applied_children_total"
        apply_chat(kube, namespace)
        wait_for(lambda: first.metric(made) >= children, "some children", every=0.001)
        first.kill()
    kube.run("patch", "rwkv/chat", "-n", namespace, "--type=merge", "-p", '{"spec":{"replicas":3}}')
    with operator_process.running(kubeconfig, tmp_path / "second.log"):
        wait_for(lambda: len(kinds(kube, namespace)) == 11, "all children", every=0.1)
        wait_loading(kube, namespace, generation=2)
    engines = kube.get("statefulset", "chat-engine", "-n", namespace)
    assert engines["spec"]["replicas"] == 3


def test_a_change_while_the_operator_is_away_is_brought_about_when_it_is_back(
    kube: Kube, apiserver_with_workloads: ApiServer, namespace: str, tmp_path: Path
) -> None:
    kubeconfig = apiserver_with_workloads.user(operator_process.USER)
    with operator_process.running(kubeconfig, tmp_path / "first.log"):
        apply_chat(kube, namespace)
        apply_chat(kube, namespace, "gone")
        wait_for(lambda: len(kinds(kube, namespace)) == 22, "all children", every=0.1)
    kube.run("delete", "rwkv/gone", "-n", namespace)
    kube.run("delete", "service/chat", "-n", namespace)
    change = json.dumps({"spec": {"engine": {"maxNumSeqs": 4}}})
    kube.run("patch", "rwkv/chat", "-n", namespace, "--type=merge", "-p", change)
    wait_for(lambda: len(kinds(kube, namespace)) == 10, "the garbage collector", every=0.1)
    with operator_process.running(kubeconfig, tmp_path / "second.log") as second:
        wait_for(lambda: len(kinds(kube, namespace)) == 11, "the Service", every=0.1)
        config = ("get", "configmap", "chat-engine", "-n", namespace, "-o", "jsonpath={.data}")
        wait_for(lambda: "maxNumSeqs: 4" in kube.run(*config), "the new config", every=0.1)
        wait_loading(kube, namespace, generation=2)
        assert second.metric("rwkv_operator_applied_children_total") == 4
        assert second.end() == 0
    log = (tmp_path / "second.log").read_text()
    assert "Traceback" not in log


def test_an_operator_of_one_namespace_leaves_the_others_alone(
    kube: Kube, apiserver_with_workloads: ApiServer, namespace: str, tmp_path: Path
) -> None:
    kubeconfig = apiserver_with_workloads.user(operator_process.USER)
    environ = {"RWKV_WATCH_NAMESPACE": namespace}
    apply_chat(kube, "default", "elsewhere")
    with operator_process.running(kubeconfig, tmp_path / "operator.log", environ):
        apply_chat(kube, namespace)
        wait_loading(kube, namespace)
    assert "status" not in kube.get("rwkv", "elsewhere")
    kube.run("delete", "rwkv/elsewhere")


def test_a_change_of_a_node_leads_to_a_new_verdict_without_any_look_in_between(
    kube: Kube, apiserver_with_workloads: ApiServer, namespace: str, tmp_path: Path
) -> None:
    kubeconfig = apiserver_with_workloads.user(operator_process.USER)
    # With such intervals only events lead to a pass.
    slow = {f"RWKV_{kind}_SECONDS": "3600" for kind in ("MOVING", "UNREADY", "STEADY")}
    hardware = {"stack": "nvidia-cuda13", "acceptUnvalidated": True}
    meta = {"apiVersion": names.API_VERSION, "kind": names.DEPLOYMENT_KIND}
    spec = deployments.raw({"hardware": hardware})["spec"]
    none = Wanted("Admitted", "False", "NoMatchingNode")
    unknown = Wanted("Admitted", "Unknown", "LabelsMissing")
    kube.apply(node_objects.bare("late"))
    took = []
    with operator_process.running(kubeconfig, tmp_path / "operator.log", slow):
        kube.apply({**meta, "metadata": {"name": "chat", "namespace": namespace}, "spec": spec})
        chat = partial(kube.get, "rwkv", "chat", "-n", namespace)
        wait_condition(chat, none)
        for count, wanted in ((1, unknown), (None, none)) * 3:
            equipment.equip(kube, "late", {"nvidia.com/gpu": count})
            started = time.monotonic()
            wait_condition(chat, wanted)
            took.append(time.monotonic() - started)
    print(f"from a node's change to the verdict: {statistics.median(took):.2f} s", max(took))
    kube.run("delete", "node", "late")


def test_the_catalogue_is_applied_once_and_an_admins_changes_stay(
    kube: Kube, apiserver_with_workloads: ApiServer, tmp_path: Path
) -> None:
    kubeconfig = apiserver_with_workloads.user(operator_process.USER)
    stack = deployments.load(deployments.CRDS / "stacks" / "cpu.yaml")
    stack["metadata"]["name"] = "catalogue-cpu"
    stack["spec"]["evidence"] = {"status": "Unvalidated"}
    folder = tmp_path / "catalogue"
    folder.mkdir()
    (folder / "cpu.yaml").write_text(json.dumps(stack))
    environ = {"RWKV_CATALOGUE": str(folder)}
    with operator_process.running(kubeconfig, tmp_path / "first.log", environ) as operator:
        assert operator.mutating() >= 2
    get = ("rwkvstack", "catalogue-cpu")
    assert kube.get(*get)["spec"] == stack["spec"]
    change = {"engineImage": "registry.example/own:1", "evidence": None}
    kube.run("patch", *get, "--type=merge", "-p", json.dumps({"spec": change}))
    with operator_process.running(kubeconfig, tmp_path / "second.log", environ):
        found = kube.get(*get)["spec"]
    assert found["engineImage"] == "registry.example/own:1"
    assert "catalogue-cpu: it stays as it is" in (tmp_path / "second.log").read_text()
    kube.run("delete", *get)


def test_a_field_that_cannot_be_changed_is_told_and_keeps_no_new_image_away(
    kube: Kube, apiserver_with_workloads: ApiServer, tmp_path: Path
) -> None:
    user = str(apiserver_with_workloads.user(operator_process.USER))
    cluster = Cluster(kubernetes.config.new_client_from_config(user), Metrics())
    stack = deployments.load(deployments.CRDS / "stacks" / "cpu.yaml")
    stack["metadata"]["name"] = "fixed-cpu"
    (tmp_path / "fixed.yaml").write_text(json.dumps(stack))
    catalogue.apply_catalogue(cluster, tmp_path, "2026-01-02T00:00:00Z")
    wider = {"requests": {"cpu": "3"}}
    newer = {**stack["spec"], "engineImage": "registry.example/server:2", "resources": wider}
    (tmp_path / "fixed.yaml").write_text(json.dumps({**stack, "spec": newer}))
    catalogue.apply_catalogue(cluster, tmp_path, "2026-01-03T00:00:00Z")
    live = kube.get("rwkvstack", "fixed-cpu")
    assert live["spec"] == {**stack["spec"], "engineImage": "registry.example/server:2"}
    about = "involvedObject.name=fixed-cpu,reason=CatalogueDiffers"
    (event,) = kube.items("events", "-n", "default", "--field-selector", about)
    assert "spec.resources is" in event["message"] and '"cpu": "3"' in event["message"]
    kube.run("delete", "rwkvstack", "fixed-cpu")

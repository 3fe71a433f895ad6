"""What the operator makes of a deployment on a real API server, and how it keeps it so."""

import json
import re
import time
import urllib.request

import deployments
import pytest
from kube import Kube, Wanted, wait_condition, wait_for
from operator_process import OperatorProcess

from rwkv_operator import names
from rwkv_operator.cluster.kinds import KINDS

pytestmark = pytest.mark.apiserver

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
CHILDREN = [
    "serviceaccount/chat",
    "networkpolicy/chat-engine",
    "networkpolicy/chat-router",
    "poddisruptionbudget/chat-engine",
    "poddisruptionbudget/chat-router",
    "configmap/chat-engine",
    "configmap/chat-router",
    "service/chat-engine",
    "service/chat",
    "statefulset/chat-engine",
    "deployment/chat-router",
    "secret/chat-internal",
    "secret/chat-api-key",
]

APPLIED = {
    (names.DEPLOYMENT_PLURAL, "status"),
    *((kind.plural, "") for kind in KINDS.values() if kind.child),
}


def apply_chat(kube: Kube, namespace: str, **spec: object) -> dict:
    obj = deployments.load(deployments.CRDS / "samples" / "tiny-recall.yaml")
    obj["metadata"]["namespace"] = namespace
    obj["spec"] |= spec
    kube.apply(obj)
    return obj


def wait_chat(kube: Kube, namespace: str, wanted: Wanted) -> dict:
    """Wait until a condition of the deployment is as wanted; returns the deployment."""
    wait_condition(lambda: kube.get("rwkv", "chat", "-n", namespace), wanted)
    return kube.get("rwkv", "chat", "-n", namespace)


def existing(kube: Kube, namespace: str) -> set[str]:
    found = kube.run("get", *CHILDREN, "-n", namespace, "--ignore-not-found", "-o", "name")
    return {re.sub(r"\.[a-z0-9.]+/", "/", line) for line in found.split()}


def wait_children(kube: Kube, namespace: str) -> None:
    missing = set(CHILDREN)
    wait_for(lambda: existing(kube, namespace) == missing, f"all children in {namespace}")


def settle(kube: Kube, operator: OperatorProcess, namespace: str) -> None:
    """Wait until the controllers have made all pods and the operator has no more to do.

    Deployments of former tests have to be gone: what they still lead to is counted, too.
    """
    wait_for(lambda: len(kube.items("rwkv", "-A")) == 1, "other deployments to go")
    selector = f"{names.LABEL_DEPLOYMENT}=chat"
    wait_for(lambda: len(kube.items("pods", "-n", namespace, "-l", selector)) == 4, "four pods")
    while True:
        before = operator.passes()
        time.sleep(2.0)
        if operator.passes() == before:
            return


def test_apply_makes_every_child(kube: Kube, operator: OperatorProcess, namespace: str) -> None:
    apply_chat(kube, namespace)
    wait_children(kube, namespace)
    chat = wait_chat(kube, namespace, Wanted("Admitted", "True", "Admitted"))
    assert "finalizers" not in chat["metadata"]
    assert set(chat["metadata"]["annotations"]) == {LAST_APPLIED}


def test_at_rest_a_pass_makes_no_mutating_call(
    kube: Kube, operator: OperatorProcess, namespace: str
) -> None:
    apply_chat(kube, namespace)
    wait_children(kube, namespace)
    settle(kube, operator, namespace)
    passes, ours = operator.passes(), operator.mutating()
    server = applies(kube)
    # An annotation of somebody else: an event, hence a pass, and nothing to do.
    kube.run("annotate", "service/chat", "-n", namespace, "team=nlp")
    wait_for(lambda: operator.passes() > passes, "a pass")
    settle(kube, operator, namespace)
    assert operator.mutating() == ours
    assert applies(kube) == server
    assert kube.get("service", "chat", "-n", namespace)["metadata"]["annotations"]["team"] == "nlp"


def applies(kube: Kube) -> float:
    """Server-side applies of our kinds by anybody, as the API server counts them."""
    count = 0.0
    for line in kube.run("get", "--raw", "/metrics").splitlines():
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        if line.startswith("apiserver_request_total{") and labels["verb"] == "APPLY":
            place = (labels["resource"], labels["subresource"])
            if place in APPLIED:
                count += float(line.rsplit(" ", 1)[1])
    return count


CHANGES = {
    "statefulset/chat-engine": {"spec": {"replicas": 5}},
    "service/chat": {"spec": {"selector": {"serving.rwkv.dev/component": "engine"}}},
    "configmap/chat-engine": {"data": {"engine.yaml": "version: 7"}},
    "networkpolicy/chat-router": {"spec": {"ingress": [{}]}},
    "networkpolicy/chat-engine": {"spec": {"podSelector": {"matchLabels": {"off": "yes"}}}},
    "service/chat-engine": {"spec": {"selector": {"off": "yes"}}},
    "deployment/chat-router": {"spec": {"replicas": 1}},
    "serviceaccount/chat": {"automountServiceAccountToken": True},
    "poddisruptionbudget/chat-engine": {"spec": {"maxUnavailable": 2}},
}


def test_a_users_changes_are_put_back(
    kube: Kube, operator: OperatorProcess, namespace: str
) -> None:
    apply_chat(kube, namespace)
    wait_children(kube, namespace)
    wait_chat(kube, namespace, Wanted("Admitted", "True", "Admitted"))
    before = {target: ours(kube, target, namespace) for target in CHANGES}
    for target, change in CHANGES.items():
        kube.run("patch", target, "-n", namespace, "--type=merge", "-p", json.dumps(change))
    for target in CHANGES:
        wait_for(
            lambda target=target: ours(kube, target, namespace) == before[target],
            f"{target} to be put back",
        )
    told = "setting spec.replicas of StatefulSet chat-engine"
    wait_for(lambda: told in operator.log.read_text(), f"the log to say: {told}")


def ours(kube: Kube, target: str, namespace: str) -> dict:
    obj = kube.get(target, "-n", namespace)
    return {key: obj.get(key) for key in ("spec", "data", "automountServiceAccountToken")}


def test_a_removed_child_comes_back(kube: Kube, operator: OperatorProcess, namespace: str) -> None:
    apply_chat(kube, namespace)
    wait_children(kube, namespace)
    kube.run("delete", "service/chat", "configmap/chat-router", "-n", namespace)
    wait_children(kube, namespace)


def test_a_foreign_object_is_left_alone_until_it_is_gone(
    kube: Kube, operator: OperatorProcess, namespace: str
) -> None:
    port = [{"port": 7, "protocol": "TCP", "targetPort": 7}]
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "chat", "namespace": namespace},
            "spec": {"ports": port},
        }
    )
    apply_chat(kube, namespace)
    taken = "Service chat exists and is controlled by nobody"
    wait_chat(kube, namespace, Wanted("Ready", "False", "NameTaken", (taken,)))
    service = kube.get("service", "chat", "-n", namespace)
    assert service["spec"]["ports"] == port
    assert "ownerReferences" not in service["metadata"]
    kube.run("delete", "service/chat", "-n", namespace)
    kube.run("annotate", "service/chat-engine", "-n", namespace, "look=again")
    wait_children(kube, namespace)


def test_an_unknown_stack_makes_no_pod_and_goes_on_when_it_appears(
    kube: Kube, operator: OperatorProcess, namespace: str
) -> None:
    apply_chat(kube, namespace, hardware={"stack": f"late-{namespace}"})
    unknown = Wanted("Admitted", "False", "UnknownStack", (f"late-{namespace}", "cpu"))
    wait_chat(kube, namespace, unknown)
    assert existing(kube, namespace) == set()
    stack = deployments.cpu_stack_object()
    stack["metadata"]["name"] = f"late-{namespace}"
    kube.apply(stack)
    wait_children(kube, namespace)
    wait_chat(kube, namespace, Wanted("Admitted", "True", "Admitted"))
    kube.run("delete", "rwkvstack", f"late-{namespace}")
    wait_chat(kube, namespace, unknown)
    assert existing(kube, namespace) == set(CHILDREN)


def test_what_is_no_longer_wanted_goes_and_the_rest_stays(
    kube: Kube, operator: OperatorProcess, namespace: str
) -> None:
    apply_chat(kube, namespace)
    wait_children(kube, namespace)
    kube.run("scale", "rwkv/chat", "-n", namespace, "--replicas=1")
    smaller = set(CHILDREN) - {"poddisruptionbudget/chat-engine"}
    wait_for(lambda: existing(kube, namespace) == smaller, "the budget to go")
    kube.run("scale", "rwkv/chat", "-n", namespace, "--replicas=2")
    wait_children(kube, namespace)


def test_secrets_are_made_once_and_never_read_or_changed(
    kube: Kube, operator: OperatorProcess, namespace: str
) -> None:
    apply_chat(kube, namespace)
    wait_children(kube, namespace)
    keys = [secret(kube, name, namespace) for name in ("chat-internal", "chat-api-key")]
    assert len(set(keys)) == 2 and min(map(len, keys)) >= 32
    change = {"engine": {"podTemplate": {"annotations": {"a": "b"}}}}
    patch = json.dumps({"spec": change})
    kube.run("patch", "rwkv/chat", "-n", namespace, "--type=merge", "-p", patch)
    wait_chat(kube, namespace, Wanted("Admitted", "True", "Admitted", generation=2))
    assert keys == [secret(kube, name, namespace) for name in ("chat-internal", "chat-api-key")]


def secret(kube: Kube, name: str, namespace: str) -> str:
    return kube.run("get", "secret", name, "-n", namespace, "-o", "jsonpath={.data.*}")


def test_deleting_the_deployment_removes_every_child(
    kube: Kube, operator: OperatorProcess, namespace: str
) -> None:
    apply_chat(kube, namespace)
    wait_children(kube, namespace)
    kube.run("delete", "rwkv/chat", "-n", namespace)
    wait_for(lambda: existing(kube, namespace) == set(), "the children to go")


def test_the_operator_stays_small_and_answers_its_probes(operator: OperatorProcess) -> None:
    assert operator.rss_bytes() <= 150e6
    with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/livez") as answer:
        assert answer.status == 200

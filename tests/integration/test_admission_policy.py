"""The chart's admission policy on a real API server: what users with few rights may and may not do.

The policy only asks about changes of a spec: nothing that a controller does later may fail by it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import crd_values
import deployments
import kubernetes
import operator_process
import pytest
import yaml
from chart import find_helm, of_kind
from kube import Kube, KubeError, wait_for

from rwkv_cluster.apiserver import ApiServer
from rwkv_operator import names
from rwkv_operator.cluster.client import Cluster
from rwkv_operator.metrics import Metrics

pytestmark = pytest.mark.apiserver

NAMESPACE = "policy"
RBAC = "rbac.authorization.k8s.io"
HUB = {"repo": "org/model", "tokenSecretRef": {"name": "token", "key": "t"}}
SECRETS = {
    "apiKeysSecretRef": {"auth": {"apiKeysSecretRef": {"name": "keys"}}},
    "huggingFace": {"model": {"source": {"huggingFace": HUB}}},
    "modelScope": {"model": {"source": {"modelScope": HUB}}},
    "credentialsSecretRef": {
        "state": {"store": {"s3": {"bucket": "states", "credentialsSecretRef": {"name": "s3"}}}}
    },
    "imagePullSecrets": {"engine": {"podTemplate": {"imagePullSecrets": [{"name": "pull"}]}}},
}
"""A spec for every field that names a Secret."""


def chat(spec: dict[str, Any] | None = None, name: str = "chat") -> dict[str, Any]:
    raw = deployments.raw(spec, name)
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.DEPLOYMENT_KIND,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": raw["spec"],
    }


UNVALIDATED = chat({"hardware": {"stack": "cpu", "acceptUnvalidated": True}})


@pytest.fixture(scope="module")
def admin(apiserver: ApiServer) -> Iterator[Kube]:
    """An admin, with the policy in force and a user `dev` who may only edit deployments."""
    kube = Kube(str(apiserver.kubectl), "helm", apiserver.kubeconfig)
    kube.run("create", "namespace", NAMESPACE)
    rule = {"apiGroups": [names.GROUP], "resources": [names.DEPLOYMENT_PLURAL], "verbs": ["*"]}
    bind(kube, "dev", "edit", [rule])
    objects = find_helm().render()
    policies = [
        *of_kind(objects, "ValidatingAdmissionPolicy").values(),
        *of_kind(objects, "ValidatingAdmissionPolicyBinding").values(),
    ]
    assert len(policies) == 2
    for policy in policies:
        kube.apply(policy)
    dev = user(apiserver, "dev")
    wait_for(lambda: refusal(dev, UNVALIDATED), "the policy to be in force", every=0.2)
    yield kube
    for policy in policies:
        kube.run("delete", policy["kind"], policy["metadata"]["name"])
    kube.run("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def dev(apiserver: ApiServer, admin: Kube) -> Iterator[Kube]:
    """The user, who has no rights on Secrets or stacks unless a test gives them."""
    dev = user(apiserver, "dev")
    yield dev
    admin.run("delete", "rwkv", "--all", "-n", NAMESPACE)
    gone = admin.run("delete", "rolebinding,role", "-l", "test=yes", "-n", NAMESPACE)
    gone += admin.run("delete", "clusterrolebinding,clusterrole", "-l", "test=yes")
    if "deleted" in gone:
        both = (UNVALIDATED, chat(SECRETS["huggingFace"]))
        wait_for(lambda: all(refusal(dev, obj) for obj in both), "the rights to be forgotten")


def user(server: ApiServer, name: str) -> Kube:
    return Kube(str(server.kubectl), "helm", server.user(name))


def bind(
    kube: Kube, who: str, name: str, rules: list[dict[str, Any]], everywhere: bool = False
) -> None:
    """Give a user rights, in the namespace or on objects without one."""
    prefix = "Cluster" if everywhere else ""
    metadata = {"name": name, "labels": {"test": "no" if name == "edit" else "yes"}}
    if not everywhere:
        metadata["namespace"] = NAMESPACE
    meta = {"apiVersion": f"{RBAC}/v1", "metadata": metadata}
    reference = {"apiGroup": RBAC, "kind": f"{prefix}Role", "name": name}
    subject = {"apiGroup": RBAC, "kind": "User", "name": who}
    kube.apply({**meta, "kind": f"{prefix}Role", "rules": rules})
    kube.apply(
        {**meta, "kind": f"{prefix}RoleBinding", "roleRef": reference, "subjects": [subject]}
    )


def refusal(kube: Kube, obj: dict[str, Any], *flags: str) -> str:
    """What a create as that user is refused with; empty where it would be let through."""
    try:
        kube.run("create", "-f", "-", *(flags or ["--dry-run=server"]), stdin=json.dumps(obj))
    except KubeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("field", SECRETS)
def test_a_secret_that_the_user_may_not_get_is_named(field: str, dev: Kube) -> None:
    told = refusal(dev, chat(SECRETS[field]))
    own = {"apiKeysSecretRef": "keys", "imagePullSecrets": "pull", "credentialsSecretRef": "s3"}
    name = own.get(field, "token")
    assert field in told
    assert f"{name} of namespace {NAMESPACE}" in told
    # Not only a dry run is refused.
    assert told.split("denied request:")[1] in refusal(dev, chat(SECRETS[field]), "-o=name")


@pytest.mark.parametrize("field", SECRETS)
def test_a_secret_that_the_user_may_get_is_let_through(field: str, dev: Kube, admin: Kube) -> None:
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    bind(admin, "dev", "secrets", [{**secrets, "resourceNames": ["keys", "token", "pull", "s3"]}])
    wait_for(lambda: not refusal(dev, chat(SECRETS[field])), "the right to be known", every=0.1)


def test_every_field_that_names_a_secret_is_asked_about() -> None:
    (policy,) = of_kind(find_helm().render(), "ValidatingAdmissionPolicy").values()
    text = yaml.safe_dump(policy["spec"]["validations"], width=1000)
    fields = secret_fields(crd_values.load_schema(names.DEPLOYMENT_PLURAL)["properties"]["spec"])
    assert fields, "the schema names no Secret at all"
    for path in map(".".join, fields):
        assert path in text, f"the policy doesn't ask about {path}"


def secret_fields(schema: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all fields that name a Secret."""
    found = []
    for key, child in (schema.get("properties") or {}).items():
        here = (*path, key)
        if key.endswith(("SecretRef", "secretRef")) or key == "imagePullSecrets":
            found.append(here)
        else:
            found.extend(secret_fields(child, here))
    return found


def test_an_unvalidated_stack_needs_the_verb_on_that_very_stack(dev: Kube, admin: Kube) -> None:
    told = refusal(dev, UNVALIDATED)
    assert "needs the verb use-unvalidated on rwkvhardwarestacks cpu" in told
    assert refusal(dev, UNVALIDATED, "-o=name")
    use = {
        "apiGroups": [names.GROUP],
        "resources": [names.STACK_PLURAL],
        "resourceNames": ["cpu"],
        "verbs": ["use-unvalidated"],
    }
    bind(admin, "dev", "use", [use], everywhere=True)
    wait_for(lambda: not refusal(dev, UNVALIDATED), "the right to be known", every=0.1)
    other = chat({"hardware": {"stack": "ascend-910b3", "acceptUnvalidated": True}})
    assert "on rwkvhardwarestacks ascend-910b3" in refusal(dev, other)


def test_a_plain_deployment_needs_no_rights_but_on_itself(dev: Kube) -> None:
    assert not refusal(dev, chat())
    assert not refusal(dev, chat({"hardware": {"stack": "cpu", "acceptUnvalidated": False}}))


def test_only_changes_of_the_spec_are_asked_about(dev: Kube, admin: Kube) -> None:
    admin.apply(chat(SECRETS["apiKeysSecretRef"]))
    place = ("rwkv", "chat", "-n", NAMESPACE)
    dev.run("label", *place, "team=talk")
    dev.run("annotate", *place, "note=kept")
    with pytest.raises(KubeError, match="you may not get Secret keys"):
        dev.run("patch", *place, "--type=merge", "-p", '{"spec": {"replicas": 2}}')
    # Taking the Secret out is a change that names none.
    dev.run("patch", *place, "--type=merge", "-p", '{"spec": {"auth": null}}')


def test_the_operators_status_and_a_foreground_deletion_are_never_refused(
    apiserver: ApiServer, dev: Kube, admin: Kube
) -> None:
    operator_process.grant(admin, "policy-operator")
    kubeconfig = str(apiserver.user("policy-operator"))
    operator = Cluster(kubernetes.config.new_client_from_config(kubeconfig), Metrics())
    spec = {**SECRETS["apiKeysSecretRef"], **{"hardware": UNVALIDATED["spec"]["hardware"]}}
    admin.apply(chat(spec))
    place = ("rwkv", "chat", "-n", NAMESPACE)
    uid = admin.get(*place)["metadata"]["uid"]
    operator.apply_status({**chat(), "status": {"ready": "0/1"}}, uid)
    owner = {"apiVersion": names.API_VERSION, "kind": names.DEPLOYMENT_KIND, "name": "chat"}
    child = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "child",
            "namespace": NAMESPACE,
            "ownerReferences": [{**owner, "uid": uid, "blockOwnerDeletion": True}],
        },
    }
    admin.apply(child)
    # The API server and the garbage collector write finalizers in the user's and their own name.
    dev.run("delete", *place, "--cascade=foreground", "--timeout=60s")
    assert not admin.exists("configmap", "child", "-n", NAMESPACE)
    assert not admin.exists(*place)

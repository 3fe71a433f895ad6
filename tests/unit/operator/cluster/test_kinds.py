import deployments
import pytest

from rwkv_operator.cluster.kinds import KINDS, PERMISSIONS
from rwkv_operator.manifests import children, secrets


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "path"),
    [
        ("Service", "talk", "chat", "/api/v1/namespaces/talk/services/chat"),
        ("StatefulSet", "talk", None, "/apis/apps/v1/namespaces/talk/statefulsets"),
        ("RWKVDeployment", None, None, "/apis/serving.rwkv.dev/v1alpha1/rwkvdeployments"),
        (
            "RWKVHardwareStack",
            "ignored",
            "cpu",
            "/apis/serving.rwkv.dev/v1alpha1/rwkvhardwarestacks/cpu",
        ),
    ],
)
def test_where_an_object_is(kind: str, namespace: str, name: str, path: str) -> None:
    assert KINDS[kind].path(namespace, name) == path


def test_every_child_can_be_made_compared_and_removed() -> None:
    dep = deployments.parsed({"replicas": 2})
    for child in children.build_children(dep, deployments.context(pod_monitor=True)):
        kind = KINDS[child["kind"]]
        assert kind.child
        assert kind.api_version == child["apiVersion"]
        assert {"get", "list", "create", "patch", "delete"} <= set(kind.verbs)


def test_secrets_can_only_be_made() -> None:
    kind = KINDS[secrets.build_internal_secret(deployments.parsed(), "k")["kind"]]
    assert (kind.verbs, kind.child) == (("create",), False)


def test_permissions_name_each_resource_once_and_no_wildcard() -> None:
    resources = [(rule.group, rule.resource) for rule in PERMISSIONS]
    assert len(resources) == len(set(resources))
    assert not any("*" in (rule.group, rule.resource, *rule.verbs) for rule in PERMISSIONS)

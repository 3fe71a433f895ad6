from __future__ import annotations

import dataclasses
from typing import Any

import deployments
import pytest

from rwkv_operator import names
from rwkv_operator.manifests import engine

CTX = deployments.context()
SELECTOR = {"serving.rwkv.dev/deployment": "chat", "serving.rwkv.dev/component": "engine"}


def template(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    built: dict[str, Any] = engine.build_engine(deployments.parsed(changes), CTX)["spec"][
        "template"
    ]
    return built


def config_hash(changes: dict[str, Any] | None = None) -> str:
    found: str = template(changes)["metadata"]["annotations"][names.ANNOTATION_CONFIG_HASH]
    return found


def test_labels_of_the_user_neither_select_nor_hide() -> None:
    labels = {"team": "talk", **dict.fromkeys(names.labels("chat", "engine"), "mine")}
    changes = {"engine": {"podTemplate": {"labels": labels}}}
    built = engine.build_engine(deployments.parsed(changes), CTX)["spec"]
    assert built["selector"]["matchLabels"] == SELECTOR
    assert built["template"]["metadata"]["labels"] == {"team": "talk"} | names.labels(
        "chat", "engine"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"replicas": 4},
        {"routing": {"replicas": 3}},
        {"service": {"port": 8080}},
        {"engine": {"podTemplate": {"annotations": {"a": "b"}}}},
    ],
)
def test_what_an_engine_does_not_read_does_not_change_its_config(changes: dict[str, Any]) -> None:
    assert config_hash(changes) == config_hash()


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": {"maxNumSeqs": 8}},
        {"engine": {"shutdownTimeout": "1m"}},
        {"engine": {"extraArgs": ["--seed=1"]}},
        {"hardware": {"stack": "cpu", "devicesPerReplica": 2}},
    ],
)
def test_what_an_engine_reads_makes_new_pods(changes: dict[str, Any]) -> None:
    assert config_hash(changes) != config_hash()


def test_scaling_changes_no_pod() -> None:
    assert template({"replicas": 4}) == template()


@pytest.mark.parametrize(("timeout", "seconds"), [("1s", 54), ("30s", 83), ("1h", 3653)])
def test_the_grace_period_holds_the_whole_drain(timeout: str, seconds: int) -> None:
    pod = template({"engine": {"shutdownTimeout": timeout}})["spec"]
    assert pod["terminationGracePeriodSeconds"] == seconds


@pytest.mark.parametrize(
    ("stack", "override", "expected"),
    [
        ({}, {}, {}),
        ({"limits": {"memory": "3Gi"}}, {}, {"limits": {"memory": "3136Mi"}}),
        ({"limits": {"memory": "1.5Gi"}}, {}, {"limits": {"memory": "1600Mi"}}),
        ({"limits": {"memory": "1G"}}, {}, {"limits": {"memory": "1067108864"}}),
        (
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "3Gi"}},
            {"requests": {"memory": "2Gi"}, "limits": {"memory": "4Gi"}},
            {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"memory": "4Gi"}},
        ),
        ({"requests": {"cpu": 2}}, {}, {"requests": {"cpu": "2"}}),
        (
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "3Gi"}},
            {"limits": {"cpu": "500m", "memory": "1024Mi"}},
            {
                "requests": {"cpu": "500m", "memory": "1024Mi"},
                "limits": {"cpu": "500m", "memory": "1024Mi"},
            },
        ),
    ],
)
def test_resources_override_the_stacks_that_leave_room_for_states(
    stack: dict[str, Any], override: dict[str, Any], expected: dict[str, Any]
) -> None:
    hardware = {"stack": "x", "resources": override}
    dep = deployments.parsed({"hardware": hardware, "state": {"hotBytes": "64Mi"}})
    ctx = deployments.context(stack=dataclasses.replace(CTX.stack, resources=stack))
    assert engine.build_resources(dep.spec, ctx) == expected


@pytest.mark.parametrize(
    ("own", "expected"), [(None, {"a.example/npu": "2"}), ("b.example/npu", {"b.example/npu": "2"})]
)
def test_devices_are_asked_for_by_the_right_name(own: str | None, expected: dict[str, str]) -> None:
    hardware = {"stack": "x", "devicesPerReplica": 2} | ({"resourceName": own} if own else {})
    stack = dataclasses.replace(CTX.stack, resource_name="a.example/npu", resources={})
    dep = deployments.parsed({"hardware": hardware})
    resources = engine.build_resources(dep.spec, deployments.context(stack=stack))
    assert resources == {"limits": expected}


def test_only_a_store_with_volumes_claims_them() -> None:
    ephemeral = {"state": {"store": {"ephemeral": {}}}}
    built = engine.build_engine(deployments.parsed(ephemeral), CTX)["spec"]
    assert "volumeClaimTemplates" not in built
    assert "persistentVolumeClaimRetentionPolicy" not in built
    assert {"name": "state", "emptyDir": {"sizeLimit": "2Gi"}} in built["template"]["spec"][
        "volumes"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"state": {"store": {"ephemeral": {}}}},
        {"state": {"store": {"persistentVolumeClaim": {"claimName": "states"}}}},
        {"state": {"store": {"s3": {"bucket": "states", "credentialsSecretRef": {"name": "s3"}}}}},
        {"model": {"source": {"persistentVolumeClaim": {"claimName": "models"}}}},
        {"model": {"source": {"image": {"reference": "registry.example/m:1"}}}},
        {"model": {"source": {"huggingFace": {"repo": "org/model"}}}},
        {"model": {"source": {"modelScope": {"repo": "org/m"}}, "cache": {"claimName": "cache"}}},
    ],
)
def test_every_mount_has_a_volume_and_every_volume_a_mount(changes: dict[str, Any]) -> None:
    built = engine.build_engine(deployments.parsed(changes), CTX)["spec"]
    pod = built["template"]["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    claims = {claim["metadata"]["name"] for claim in built.get("volumeClaimTemplates", [])}
    mounts = [mount["name"] for mount in pod["containers"][0]["volumeMounts"]]
    assert not volumes & claims
    assert sorted(mounts) == sorted(volumes | claims)
    for container in pod.get("initContainers", []):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes

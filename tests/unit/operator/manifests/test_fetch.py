from __future__ import annotations

import dataclasses
import json
from typing import Any

import deployments
import pytest

from rwkv_operator.manifests import children, engine

CTX = deployments.context()
TOKEN = {"tokenSecretRef": {"name": "hub", "key": "token"}}
PROXY = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}


def pod(model: dict[str, Any], **changes: Any) -> dict[str, Any]:
    dep = deployments.parsed({"model": model, **changes})
    built: dict[str, Any] = engine.build_engine(dep, CTX)["spec"]["template"]["spec"]
    return built


def hub(**fields: Any) -> dict[str, Any]:
    return {"source": {"huggingFace": {"repo": "org/model", **fields}}}


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


@pytest.mark.parametrize(
    "source",
    [
        {"bundled": {"name": "tiny-recall"}},
        {"persistentVolumeClaim": {"claimName": "models"}},
        {"image": {"reference": "registry.example/m:1"}},
    ],
)
def test_only_a_hub_needs_a_container_that_downloads(source: dict[str, Any]) -> None:
    assert "initContainers" not in pod({"source": source})


def test_the_token_is_in_that_container_and_nowhere_else() -> None:
    dep = deployments.parsed({"model": hub(**TOKEN)})
    reference = {"secretKeyRef": {"name": "hub", "key": "token"}}
    (fetch,) = pod(hub(**TOKEN))["initContainers"]
    assert env(fetch)["RWKV_MODEL_TOKEN"] == reference
    text = json.dumps(children.build_children(dep, CTX))
    assert text.count("RWKV_MODEL_TOKEN") == 1
    assert text.count(json.dumps(reference)) == 1


def test_without_a_token_or_offline_no_secret_is_needed() -> None:
    offline = {**hub(**TOKEN), "cache": {"claimName": "cache"}, "offline": True}
    for model in (hub(), offline):
        (fetch,) = pod(model)["initContainers"]
        assert set(env(fetch)) == {"HOME", "POD_NAME"}


def test_the_environment_of_the_user_is_the_downloads_alone() -> None:
    built = pod(hub(), engine={"podTemplate": {"env": [PROXY]}})
    assert env(built["initContainers"][0])["HTTPS_PROXY"] == "http://proxy:3128"
    assert "HTTPS_PROXY" not in env(built["containers"][0])


def test_only_the_download_can_write_to_the_model_and_only_the_engine_holds_keys() -> None:
    built = pod({**hub(), "cache": {"claimName": "cache"}})
    fetch, container = built["initContainers"][0], built["containers"][0]
    writable = {m["name"]: not m.get("readOnly") for m in fetch["volumeMounts"]}
    assert writable == {"config": False, "tmp": True, "model": True}
    mounts = {m["name"]: m for m in container["volumeMounts"]}
    assert mounts["model"]["readOnly"] is True


def test_it_takes_what_the_pod_has_reserved_but_no_device() -> None:
    stack = dataclasses.replace(
        CTX.stack, resource_name="example.com/npu", resources={"limits": {"memory": "3Gi"}}
    )
    dep = deployments.parsed({"model": hub()})
    built = engine.build_engine(dep, deployments.context(stack=stack))["spec"]["template"]["spec"]
    assert built["initContainers"][0]["resources"] == {"limits": {"memory": "3584Mi"}}
    limits = {"memory": "3584Mi", "example.com/npu": "1"}
    assert built["containers"][0]["resources"] == {"limits": limits}

from __future__ import annotations

from typing import Any

import deployments
import pytest

from rwkv_operator.manifests import engine, router, storage

CTX = deployments.context()
HUB = {"source": {"huggingFace": {"repo": "org/model"}}}
S3 = {"s3": {"bucket": "states", "credentialsSecretRef": {"name": "cloud"}}}
CLAIM = {"persistentVolumeClaim": {"claimName": "states"}}


def pod(store: dict[str, Any], **state: Any) -> dict[str, Any]:
    dep = deployments.parsed({"model": HUB, "state": {"store": store, **state}})
    spec: dict[str, Any] = engine.build_template(dep, CTX)["spec"]
    return spec


def test_every_engine_has_the_same_claim_where_a_shared_store_is_mounted() -> None:
    dep = deployments.parsed({"state": {"store": CLAIM}})
    assert storage.build_volume_claim_templates(dep) == []
    volume = {"name": "state", "persistentVolumeClaim": {"claimName": "states"}}
    assert volume in pod(CLAIM)["volumes"]
    (container,) = pod(CLAIM)["containers"]
    assert {"name": "state", "mountPath": "/var/lib/rwkv/state"} in container["volumeMounts"]


def test_credentials_of_a_bucket_are_in_the_engines_container_and_nowhere_else() -> None:
    spec = pod(S3)
    (container,), (fetch,) = spec["containers"], spec["initContainers"]
    mount = {"name": "s3", "mountPath": "/etc/rwkv-s3", "readOnly": True}
    assert mount in container["volumeMounts"]
    assert "cloud" not in str(container) + str(fetch)
    assert "s3" not in {item["name"] for item in fetch["volumeMounts"]}
    (volume,) = [item for item in spec["volumes"] if item["name"] == "s3"]
    assert volume["secret"]["secretName"] == "cloud"
    assert {item["key"] for item in volume["secret"]["items"]} == set(storage.S3_KEYS)
    assert volume["secret"]["defaultMode"] == 0o440
    dep = deployments.parsed({"state": {"store": S3}})
    assert "cloud" not in str(router.build_router_deployment(dep, CTX))
    assert "cloud" not in str(router.build_router_config(dep, CTX))


@pytest.mark.parametrize(
    ("hot", "size"), [("64Mi", "320Mi"), ("512Mi", "768Mi"), ("1G", "1268435456")]
)
def test_shared_memory_has_room_for_hot_states(hot: str, size: str) -> None:
    (volume,) = [item for item in pod(CLAIM, hotBytes=hot)["volumes"] if item["name"] == "shm"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": size}

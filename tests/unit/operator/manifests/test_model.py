from __future__ import annotations

from typing import Any

import deployments
import pytest

from rwkv_operator.manifests import model

HUB = {"huggingFace": {"repo": "org/model"}}
CLAIM = {"persistentVolumeClaim": {"claimName": "models"}}
IMAGE = {"image": {"reference": "registry.example/m:1", "pullPolicy": "Always"}}
BUNDLED = {"bundled": {"name": "tiny-recall"}}


@pytest.mark.parametrize(
    ("wanted", "volume", "path"),
    [
        pytest.param({"source": BUNDLED}, None, None, id="in the engine's image"),
        pytest.param(
            {"source": CLAIM},
            {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
            "/models",
            id="a claim of the user's is never written to",
        ),
        pytest.param(
            {"source": IMAGE},
            {"image": {"reference": "registry.example/m:1", "pullPolicy": "Always"}},
            "/models/image",
            id="an OCI image",
        ),
        pytest.param(
            {"source": HUB}, {"emptyDir": {"sizeLimit": "64Gi"}}, "/models", id="no cache"
        ),
        pytest.param(
            {"source": HUB, "cache": {"sizeLimit": "4Gi"}},
            {"emptyDir": {"sizeLimit": "4Gi"}},
            "/models",
            id="a folder of the pod's own",
        ),
        pytest.param(
            {"source": HUB, "cache": {"claimName": "cache"}},
            {"persistentVolumeClaim": {"claimName": "cache"}},
            "/models",
            id="a cache is writable for the download",
        ),
    ],
)
def test_volume_and_mount_of_a_source(
    wanted: dict[str, Any], volume: dict[str, Any] | None, path: str | None
) -> None:
    dep = deployments.parsed({"model": wanted})
    if volume is None:
        assert model.build_volumes(dep) == model.build_mounts(dep) == []
    else:
        assert model.build_volumes(dep) == [{"name": "model", **volume}]
        assert model.build_mounts(dep) == [{"name": "model", "mountPath": path, "readOnly": True}]


@pytest.mark.parametrize(
    ("wanted", "env", "ports"),
    [
        pytest.param({"source": BUNDLED}, {}, [], id="nothing is downloaded"),
        pytest.param({"source": HUB}, {}, [443], id="the hub"),
        pytest.param(
            {"source": HUB, "cache": {"claimName": "c"}, "offline": True},
            {"HF_ENDPOINT": "http://hub:8080"},
            [],
            id="offline reaches nothing",
        ),
        pytest.param(
            {"source": HUB},
            {"HF_ENDPOINT": "http://hub.example.com", "HF_HUB_ETAG_TIMEOUT": "7"},
            [80, 443],
            id="a hub's port by its scheme",
        ),
        pytest.param(
            {"source": HUB},
            {"https_proxy": "proxy.example.com:3128", "NO_PROXY": "10.0.0.1:99,.svc"},
            [443, 3128],
            id="a proxy's port, but not those that need no proxy",
        ),
        pytest.param({"source": HUB}, {"HTTPS_PROXY": "http://proxy:port"}, [443], id="no number"),
    ],
)
def test_the_ports_that_a_download_needs(
    wanted: dict[str, Any], env: dict[str, str], ports: list[int]
) -> None:
    listed = [{"name": name, "value": value} for name, value in env.items()]
    changes = {"model": wanted, "engine": {"podTemplate": {"env": listed}}}
    assert model.outbound_ports(deployments.parsed(changes)) == ports


@pytest.mark.parametrize(
    ("source", "wanted_format", "size"),
    [
        (BUNDLED, "Auto", "2Gi"),
        (HUB, "PTH", "2Gi"),
        (CLAIM, "SafeTensors", "2Gi"),
        (CLAIM, "Auto", "64Gi"),
        (IMAGE, "PTH", "64Gi"),
    ],
)
def test_there_is_room_to_convert_what_lies_on_a_read_only_volume(
    source: dict[str, Any], wanted_format: str, size: str
) -> None:
    dep = deployments.parsed({"model": {"source": source, "format": wanted_format}})
    assert model.temporary_size(dep.spec.model) == size

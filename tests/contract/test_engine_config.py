"""The operator renders engine.yaml, the server parses it; neither imports the other."""

from __future__ import annotations

import re
from pathlib import Path

import engine_config
import pytest
import yaml

from rwkv_operator import names
from rwkv_operator.api import spec, stack
from rwkv_operator.manifests import engine_config as renderer
from rwkv_operator.manifests.context import Context
from rwkv_server import settings
from rwkv_server.errors import ConfigInvalid
from rwkv_server.parent import extra_args

ROOT = Path(__file__).parents[2]
CPU = yaml.safe_load((ROOT / "crds/stacks/cpu.yaml").read_text())
CRD = ROOT / "crds/rwkvdeployments.yaml"
SAMPLES = sorted((ROOT / "crds/samples").glob("*.yaml"))

FULL = {
    "model": {
        "servedName": "rwkv é",
        "source": {"persistentVolumeClaim": {"claimName": "models", "path": "a/b"}},
        "format": "SafeTensors",
        "dtype": "BFloat16",
        "maxModelLen": 512,
    },
    "hardware": {"stack": "cpu", "devicesPerReplica": 2},
    "engine": {
        "maxNumSeqs": 4,
        "maxNumBatchedTokens": 32,
        "shutdownTimeout": "2m",
        "extraArgs": ["--seed=1", "--enforce-eager"],
    },
    "state": {
        "store": {"ephemeral": {"sizeLimit": "1Gi"}},
        "defaultTTL": "2h",
        "maxBytesPerTenant": "1Gi",
        "hotBytes": "64Mi",
        "automaticReuse": "Off",
    },
    "routing": {"maxEngineReplicas": 3, "maxStateBytes": "16Mi"},
    "auth": {"mode": "Open"},
}


def render(body):
    obj = {
        "metadata": {"namespace": "default", "name": "chat", "uid": "u", "generation": 1},
        "spec": body,
    }
    parsed_stack = stack.parse_stack(CPU | {"metadata": {"name": "cpu", "uid": "s"}})
    context = Context(
        stack=parsed_stack,
        operator_image="o",
        router_image="r",
        operator_namespace="n",
        operator_labels={},
    )
    return renderer.render(spec.parse_deployment(obj), context)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_what_is_rendered_for_each_sample_is_parsed(sample):
    parsed = settings.parse_settings(render(yaml.safe_load(sample.read_text())["spec"]))
    assert parsed.deployment.name == "chat"
    assert parsed.stack.runtime.packages == CPU["spec"]["runtimeRequirements"]["packages"]


def test_every_value_arrives():
    parsed = settings.parse_settings(render(FULL))
    assert parsed.model.served_name == "rwkv é"
    assert (parsed.model.source, parsed.model.path) == ("persistentVolumeClaim", "/models/a/b")
    assert (parsed.model.format, parsed.model.dtype) == ("SafeTensors", "BFloat16")
    assert parsed.model.max_model_len == 512
    assert parsed.engine.tensor_parallel_size == 2
    assert (parsed.engine.max_num_seqs, parsed.engine.max_num_batched_tokens) == (4, 32)
    assert parsed.engine.extra_args == ["--seed=1", "--enforce-eager"]
    assert (parsed.state.store, parsed.state.shared, parsed.state.s3) == ("ephemeral", False, None)
    assert parsed.state.path == renderer.STATE_PATH
    assert (parsed.state.default_ttl_seconds, parsed.state.automatic_reuse) == (7200, "Off")
    assert (parsed.state.max_bytes_per_tenant, parsed.state.hot_bytes) == (2**30, 2**26)
    assert (parsed.state.max_upload_bytes, parsed.state.open_access) == (2**24, True)
    assert parsed.state.peers.ordinals == 3
    host = names.engine_host("chat", "default", 2, "cluster.local")
    assert parsed.state.peers.url_of(2) == f"http://{host}:{names.PORT_ENGINE}"
    assert parsed.drain.shutdown_timeout_seconds == 120
    assert (parsed.http.port, parsed.ops.port) == (names.PORT_ENGINE, names.PORT_ENGINE_OPS)


def test_a_store_in_s3_arrives():
    s3 = {
        "bucket": "my.states-1",
        "prefix": "a_b/c.d-e",
        "endpoint": "http://s3.example:7070",
        "region": "eu-1",
        "credentialsSecretRef": {"name": "secret-of-s3"},
    }
    text = render(FULL | {"state": {"store": {"s3": s3}}})
    assert "secret-of-s3" not in text
    state = settings.parse_settings(text).state
    assert (state.store, state.shared, state.path) == ("s3", True, None)
    found = state.s3.model_dump(by_alias=True)
    assert found.pop("credentialsPath") == renderer.S3_CREDENTIALS_PATH
    assert found == {key: value for key, value in s3.items() if key != "credentialsSecretRef"}
    rendered = yaml.safe_load(text)["state"]
    assert set(keys(rendered)) == set(keys(state.model_dump(by_alias=True)))


@pytest.mark.parametrize(
    "changes", [{"store": "s3"}, {"path": None}, {"s3": {}}, {"store": "s3", "path": None}]
)
def test_a_store_has_one_place(changes):
    rendered = yaml.safe_load(render(FULL))
    rendered["state"] |= changes
    with pytest.raises(ConfigInvalid, match=r"engine.yaml: state"):
        settings.parse_settings(yaml.safe_dump(rendered))


def test_a_download_arrives():
    body = {
        "model": {
            "source": {"modelScope": {"repo": "org/model", "revision": "v1", "files": ["a.pth"]}},
            "cache": {"claimName": "cache"},
            "offline": True,
            "format": "PTH",
        },
        "hardware": {"stack": "cpu"},
    }
    model = settings.parse_settings(render(body)).model
    assert (model.source, model.format) == ("modelScope", "PTH")
    assert model.download is not None
    assert (model.download.repo, model.download.revision) == ("org/model", "v1")
    assert (model.download.offline, model.download.files) == (True, ["a.pth"])


def test_the_crd_allows_no_name_that_the_server_refuses():
    schema = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    hub = schema["properties"]["spec"]["properties"]["model"]["properties"]["source"]
    fields = hub["properties"]["huggingFace"]["properties"]
    assert re.fullmatch(fields["repo"]["pattern"], "../x") is None
    for pattern, text in (
        (fields["repo"]["pattern"], "Org_1.x/model-2.x"),
        (fields["revision"]["pattern"], "refs/pr/1"),
        (fields["files"]["items"]["pattern"], "RWKV-x070-World-0.1B-v2.8.pth"),
    ):
        assert re.fullmatch(pattern, text)
    source = {"repo": "Org_1.x/model-2.x", "revision": "refs/pr/1", "files": ["a-B_1.0.pth"]}
    body = {"model": {"source": {"huggingFace": source}}, "hardware": {"stack": "cpu"}}
    assert settings.parse_settings(render(body)).model.download is not None


def keys(document, prefix=""):
    for key, value in document.items():
        yield prefix + key
        if isinstance(value, dict) and key != "runtime":
            yield from keys(value, f"{prefix}{key}.")


def test_both_sides_know_the_same_keys():
    rendered = yaml.safe_load(render(FULL))
    schema = settings.Settings.model_validate(rendered).model_dump(by_alias=True)
    assert set(keys(rendered)) == set(keys(schema)) == set(keys(engine_config.SAMPLE))


def test_a_key_of_a_newer_operator_is_refused():
    rendered = yaml.safe_load(render(FULL)) | {"sessions": {}}
    with pytest.raises(ConfigInvalid, match="sessions: found an unknown key"):
        settings.parse_settings(yaml.safe_dump(rendered))


def test_the_crd_allows_the_extra_args_that_the_server_allows():
    pattern = re.search(r"self\.matches\('(\^--\(enforce.*?\$)'\)", CRD.read_text())
    assert pattern is not None
    rule = re.compile(pattern.group(1))
    allowed = [*extra_args.SWITCHES, *(f"{flag}=1" for flag in extra_args.VALUED)]
    assert all(rule.match(argument) for argument in allowed)
    assert extra_args.check_extra_args(allowed) == allowed
    text = re.sub(r"\[.*?\]", "", pattern.group(1))
    named = set(re.findall(r"[a-z]+(?:-[a-z]+)+|seed", text))
    known = {argument.lstrip("-").partition("=")[0] for argument in allowed}
    assert named - known == set()

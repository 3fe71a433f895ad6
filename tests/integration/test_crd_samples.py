"""The CRDs on a real API server: what they accept, what they refuse and with which words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import api_client
import crd_values
import deployments
import httpx
import pytest

from rwkv_cluster.apiserver import ApiServer
from rwkv_operator import names

pytestmark = pytest.mark.apiserver

SAMPLES = [*deployments.SAMPLES, *sorted((deployments.CRDS / "stacks").glob("*.yaml"))]
INVALID = sorted((deployments.CRDS / "samples" / "invalid").glob("*.yaml"))


@pytest.fixture(scope="module")
def client(apiserver: ApiServer) -> Iterator[httpx.Client]:
    with api_client.connect(apiserver) as client:
        yield client


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_accepted(client: httpx.Client, path: Path) -> None:
    answer = api_client.try_create(client, deployments.load(path))
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_a_wrong_sample_is_refused_with_its_message(client: httpx.Client, path: Path) -> None:
    answer = api_client.try_create(client, deployments.load(path))
    assert answer.status_code in (400, 422), answer.text
    assert expected(path) in answer.json()["message"]


def test_every_rule_has_a_wrong_sample() -> None:
    texts = [expected(path) for path in INVALID]
    for plural in (names.DEPLOYMENT_PLURAL, names.STACK_PLURAL):
        for rule in rules(crd_values.load_schema(plural)):
            if "oldSelf" not in rule["rule"]:
                message = rule["message"]
                assert any(text in message for text in texts), f"nothing breaks: {message}"


def rules(schema: Any) -> list[dict[str, str]]:
    """All CEL rules of a schema."""
    if isinstance(schema, list):
        return [rule for child in schema for rule in rules(child)]
    if not isinstance(schema, dict):
        return []
    own = schema.get("x-kubernetes-validations", [])
    return [*own, *(rule for child in schema.values() for rule in rules(child))]


def expected(path: Path) -> str:
    """What a wrong sample says about itself."""
    match = re.search(r"^# expect: (.+)$", path.read_text(), re.MULTILINE)
    assert match, f"{path.name} lacks its '# expect:' line"
    return match.group(1)


def test_the_api_server_fills_in_the_defaults_that_the_unit_tests_assume(
    client: httpx.Client,
) -> None:
    spec = deployments.raw()["spec"]
    kind = {"apiVersion": names.API_VERSION, "kind": names.DEPLOYMENT_KIND}
    obj = {**kind, "metadata": {"name": "chat", "namespace": "default"}, "spec": spec}
    schema = crd_values.load_schema(names.DEPLOYMENT_PLURAL)
    assert (
        api_client.try_create(client, obj).json()["spec"]
        == crd_values.with_defaults(schema, obj)["spec"]
    )


def test_a_field_that_is_too_long_does_not_hide_the_rules(client: httpx.Client) -> None:
    # The rules' cost is bounded by the schema's limits; beyond those only the limit is told.
    spec = deployments.raw({"engine": {"extraArgs": ["--seed=1"] * 17}})["spec"]
    kind = {"apiVersion": names.API_VERSION, "kind": names.DEPLOYMENT_KIND}
    answer = api_client.try_create(
        client, {**kind, "metadata": {"name": "chat", "namespace": "default"}, "spec": spec}
    )
    assert "spec.engine.extraArgs" in answer.json()["message"]
    assert "must have at most 16 items" in answer.json()["message"]

"""Whatever the schema and its rules let in leads to children that a real API server takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import api_client
import crd_values
import deployments
import httpx
import pytest
from hypothesis import HealthCheck, assume, event, example, given, settings
from hypothesis import strategies as st

from rwkv_cluster.apiserver import ApiServer
from rwkv_operator import names
from rwkv_operator.api import spec
from rwkv_operator.decide import compare
from rwkv_operator.manifests import children

pytestmark = pytest.mark.apiserver

SCHEMA = crd_values.load_schema(names.DEPLOYMENT_PLURAL)
SPEC = SCHEMA["properties"]["spec"]
BUNDLED = {"source": {"bundled": {"name": "tiny-recall"}}}
CTX = deployments.context()

# Where a rule in CEL, or Kubernetes itself, asks for more than the schema says.
KNOWN: dict[str, st.SearchStrategy[Any]] = {
    "replicas": st.integers(1, 16),
    "maxEngineReplicas": st.integers(16, 64),
    "maxNumSeqs": st.integers(1, 64),
    "maxNumBatchedTokens": st.integers(64, 4096),
    "maxBodyBytes": st.sampled_from(["64Ki", "1M", "16Mi"]),
    "maxRequestBytes": st.sampled_from(["16Mi", "1G"]),
    "shutdownTimeout": st.sampled_from(["1s", "5m", "1h"]),
    "extraArgs": st.lists(st.sampled_from(["--seed=1", "--enforce-eager"]), max_size=2),
    "tolerations": st.lists(
        st.sampled_from(
            [
                {"operator": "Exists"},
                {"key": "a", "operator": "Equal", "value": ""},
                {"key": "a.io/b", "value": "c", "effect": "NoExecute", "tolerationSeconds": 0},
            ]
        ),
        max_size=2,
    ),
    "requests": st.fixed_dictionaries(
        {}, optional={"cpu": st.sampled_from([0, 1, "0.5", "1000m"])}
    ),
    "limits": st.fixed_dictionaries(
        {}, optional={"memory": st.sampled_from(["1024Mi", "1.5Gi", "4G"])}
    ),
    "ipBlock": st.sampled_from(
        [{"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}, {"cidr": "fd00::/8", "except": []}]
    ),
    "matchExpressions": st.lists(
        st.sampled_from(
            [
                {"key": "a", "operator": "In", "values": ["b", ""]},
                {"key": "a.io/b", "operator": "Exists", "values": []},
            ]
        ),
        max_size=2,
    ),
    "minDomains": st.nothing(),
    "offline": st.just(False),
    "env": st.sampled_from([[], [{"name": "HF_ENDPOINT", "value": "https://hub.example.com"}]]),
}
for name in ("request", "response", "queue"):
    KNOWN[name] = st.sampled_from(["1s", "10m", "24h"])


@pytest.fixture(scope="module")
def client(apiserver: ApiServer) -> Iterator[httpx.Client]:
    with api_client.connect(apiserver) as client:
        yield client


any_deployment = given(value=crd_values.values(SPEC, KNOWN), name=crd_values.names_of_deployments())
patient = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(patient, max_examples=100, derandomize=True, database=None)
@any_deployment
@example(  # below what the stack requests
    value={
        "model": BUNDLED,
        "hardware": {"stack": "cpu", "resources": {"limits": {"memory": "1024Mi"}}},
    },
    name="small",
)
def test_children_of_any_deployment_are_accepted(
    client: httpx.Client, value: dict[str, Any], name: str
) -> None:
    check_children(client, value, name)


@pytest.mark.long
@settings(patient, max_examples=1000)
@any_deployment
def test_children_of_many_deployments_are_accepted(
    client: httpx.Client, value: dict[str, Any], name: str
) -> None:
    check_children(client, value, name)


def check_children(client: httpx.Client, value: dict[str, Any], name: str) -> None:
    """What the API server lets in is read as it is stored, and it takes every child."""
    obj = {
        "apiVersion": names.API_VERSION,
        "kind": names.DEPLOYMENT_KIND,
        "metadata": {"name": name, "namespace": "default"},
        "spec": value,
    }
    answer = api_client.try_create(client, obj)
    event(f"deployment: {answer.status_code}")
    assume(answer.status_code == 201)
    stored = answer.json()
    assert stored["spec"] == crd_values.with_defaults(SPEC, value)
    for child in children.build_children(spec.parse_deployment(stored), CTX):
        answer = api_client.try_apply(client, child)
        assert answer.status_code == 201, (child["kind"], answer.json()["message"])
        assert compare.differences(child, answer.json()) == ()

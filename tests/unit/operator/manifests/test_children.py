from __future__ import annotations

import copy
import re
from typing import Any

import crd_values
import deployments
from hypothesis import HealthCheck, assume, given, settings

from rwkv_operator import errors, names
from rwkv_operator.api import spec
from rwkv_operator.manifests import children

SPEC = crd_values.load_schema(names.DEPLOYMENT_PLURAL)["properties"]["spec"]
CTX = deployments.context()
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def kinds(dep: spec.Deployment, **changes: Any) -> list[str]:
    """Kind and name of each child, in order."""
    built = children.build_children(dep, deployments.context(**changes))
    return [f"{child['kind']}/{child['metadata']['name']}" for child in built]


def test_the_children_in_the_order_in_which_they_are_applied() -> None:
    assert kinds(deployments.parsed({"replicas": 2}), pod_monitor=True) == [
        "ServiceAccount/chat",
        "NetworkPolicy/chat-engine",
        "NetworkPolicy/chat-router",
        "PodDisruptionBudget/chat-engine",
        "PodDisruptionBudget/chat-router",
        "ConfigMap/chat-engine",
        "ConfigMap/chat-router",
        "Service/chat-engine",
        "Service/chat",
        "StatefulSet/chat-engine",
        "Deployment/chat-router",
        "PodMonitor/chat",
    ]


def test_what_is_not_wanted_is_not_there() -> None:
    single = kinds(deployments.parsed({"replicas": 1, "routing": {"replicas": 1}}))
    assert not {kind.split("/")[0] for kind in single} & {"PodDisruptionBudget", "PodMonitor"}


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(crd_values.values(SPEC), crd_values.names_of_deployments())
def test_children_of_any_deployment_have_valid_names_and_labels(
    value: dict[str, Any], name: str
) -> None:
    obj = deployments.raw(value, name)
    try:
        dep = spec.parse_deployment(copy.deepcopy(obj))
    except errors.InvalidSpec:
        assume(False)
    built = children.build_children(dep, CTX)
    assert built == children.build_children(dep, CTX)
    for child in built:
        metadata = child["metadata"]
        assert DNS_LABEL.fullmatch(metadata["name"])
        assert metadata["namespace"] == dep.namespace
        assert metadata["ownerReferences"][0]["uid"] == dep.uid
        assert metadata["annotations"][names.ANNOTATION_APPLIED_HASH]
        template = child.get("spec", {}).get("template")
        for labels in (metadata["labels"], template["metadata"]["labels"] if template else {}):
            assert all(LABEL_VALUE.fullmatch(text) for text in labels.values())
        if template:
            selector = child["spec"]["selector"]["matchLabels"]
            assert selector.items() <= template["metadata"]["labels"].items()

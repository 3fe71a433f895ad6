from dataclasses import replace

import deployments
import node_objects
import pytest

from rwkv_operator.api.stack import Supports
from rwkv_operator.decide import admission
from rwkv_operator.errors import InvalidSpec

NODE = node_objects.parsed()
NARROW = replace(
    deployments.cpu_stack(),
    supports=Supports(devices_per_replica=(1,), dtypes=("Float32",), formats=("SafeTensors",)),
)


@pytest.mark.parametrize(
    ("spec", "texts"),
    [
        pytest.param(
            {"hardware": {"stack": "cpu", "devicesPerReplica": 2}},
            ["spec.hardware.devicesPerReplica: found 2", "stack cpu supports: 1"],
            id="more devices than the stack was tested with",
        ),
        pytest.param(
            {"model": {"source": {"bundled": {"name": "x"}}, "dtype": "BFloat16"}},
            ["spec.model.dtype: found BFloat16", "stack cpu supports: Float32"],
            id="a dtype that the stack can't compute in",
        ),
    ],
)
def test_an_unsupported_combination_is_refused_with_field_found_and_wanted(
    spec: dict, texts: list[str]
) -> None:
    verdict = admission.decide_admission(deployments.parsed(spec), NARROW, [NODE]).condition
    assert (verdict.status, verdict.reason) == ("False", "UnsupportedCombination")
    for text in texts:
        assert text in verdict.message


@pytest.mark.parametrize(
    ("spec", "stack"),
    [
        pytest.param({}, NARROW, id="Auto leaves the choice to the stack"),
        pytest.param(
            {"hardware": {"stack": "cpu", "devicesPerReplica": 8}},
            replace(NARROW, supports=Supports()),
            id="a stack that restricts nothing",
        ),
        pytest.param(
            {"model": {"source": {"bundled": {"name": "x"}}, "dtype": "Float32"}},
            NARROW,
            id="a dtype that the stack has",
        ),
    ],
)
def test_a_supported_combination_is_admitted(spec: dict, stack: object) -> None:
    verdict = admission.decide_admission(deployments.parsed(spec), stack, [NODE]).condition
    assert (verdict.status, verdict.reason) == ("True", "Admitted")


def test_an_unknown_stack_is_named_beside_those_that_there_are() -> None:
    dep = deployments.parsed({"hardware": {"stack": "tpu-v9"}})
    verdict = admission.decide_admission(dep, None, [], ["nvidia-cuda13", "cpu"]).condition
    assert (verdict.status, verdict.reason) == ("False", "UnknownStack")
    assert "found tpu-v9" in verdict.message
    assert verdict.message.endswith("cpu, nvidia-cuda13")


def test_without_any_stack_the_message_says_where_they_come_from() -> None:
    assert "chart" in admission.decide_admission(deployments.parsed(), None, []).condition.message


def test_a_stack_that_cannot_be_read_is_refused() -> None:
    error = InvalidSpec("spec.vendor", "abacus", "one of cpu")
    verdict = admission.decide_admission(deployments.parsed(), error, []).condition
    assert (verdict.status, verdict.reason) == ("False", "InvalidStack")
    assert "RWKVHardwareStack cpu: spec.vendor: found abacus" in verdict.message


def test_a_spec_that_cannot_be_read_is_refused_with_its_field() -> None:
    verdict = admission.decide_unreadable(InvalidSpec("spec.replicas", "many", "a number"))
    assert (verdict.status, verdict.reason) == ("False", "InvalidSpec")
    assert verdict.message == "spec.replicas: found many, wanted a number"

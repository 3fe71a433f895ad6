from __future__ import annotations

import pytest

from rwkv_server import settings
from rwkv_server.preflight import rules
from rwkv_server.preflight.machine import Reading

A, B = "place a", "place b"


def judge(vendor="nvidia", readings=(), **runtime):
    stack = settings.validate(
        settings.Stack,
        {"name": "s", "vendor": vendor, "runtime": runtime, "supports": {"quantization": []}},
        "s",
    )
    wanted = rules.build_rules(stack)
    return rules.judge(wanted, {wanted[0].requirement: list(readings)})[0]


@pytest.mark.parametrize(
    ("runtime", "found", "ok"),
    [
        ({"chip": ["Ascend910B3"]}, "Ascend910B3", True),
        ({"chip": ["Ascend910B3"]}, "ascend910b3", True),
        ({"chip": ["NVIDIA-H200", "Tesla-T4"]}, "NVIDIA H200", True),
        ({"chip": ["Ascend910B3"]}, "Ascend910B2", False),
        ({"chip": ["Ascend910B"]}, "Ascend910B3", False),
        ({"driver": {"atLeast": "580"}}, "580.95.05", True),
        ({"driver": {"atLeast": "580"}}, "580", True),
        ({"driver": {"atLeast": "580"}}, "579.99", False),
        ({"driver": {"atLeast": "25.0"}}, "25.0.rc1", False),
        ({"driver": {"atLeast": "25.0.rc1"}}, "25.0.RC1.1", True),
        ({"driver": {"atLeast": "25.0"}}, "nightly", False),
        ({"cann": "8.5.0"}, "8.5.0", True),
        ({"cann": "8.5.0"}, "8.5", True),
        ({"cann": "8.5.0"}, "8.5.1", False),
        ({"cann": "8.5.0"}, "8.5.0.RC1", False),
        ({"cann": "8.5.0"}, "8.5.0-custom", False),
        ({"cuda": {"atLeast": "13.0"}}, "13.1", True),
        ({"cuda": {"atLeast": "13.0"}}, "12.9", False),
        ({"computeCapability": {"atLeast": "7.5"}}, "10.0", True),
        ({"computeCapability": {"atLeast": "7.5"}}, "7.0", False),
        ({"architecture": ["arm64"]}, "arm64", True),
        ({"architecture": ["arm64"]}, "amd64", False),
        ({"packages": {"vllm": "0.32.0"}}, "0.32.0", True),
        ({"packages": {"vllm": "0.32.0"}}, "0.32.0+cpu", True),
        ({"packages": {"vllm": "0.32.0"}}, "0.32", True),
        ({"packages": {"vllm": "2.9.0.post1+x"}}, "2.9.0.post1", True),
        ({"packages": {"vllm": "2.9.0"}}, "2.9.0.post1", False),
        ({"packages": {"vllm": "0.32.0"}}, "0.32.1", False),
        ({"packages": {"vllm": "0.32.0"}}, "0.32.0rc1", False),
        ({"packages": {"vllm": "0.32.0"}}, "dev", False),
    ],
)
def test_what_will_do(runtime, found, ok):
    finding = judge(readings=[Reading(A, found)], **runtime)
    assert finding.ok is ok
    assert (finding.found, finding.source) == (found, A)


def test_unknown_is_a_mismatch_that_says_what_could_not_be_read():
    finding = judge(readings=[Reading(A, None, "no such file"), Reading(B, None, "silent")],
                    cann="8.5.0")  # fmt: skip
    assert (finding.ok, finding.found) == (False, "unknown")
    assert finding.problem == "could not be read: place a: no such file; place b: silent"
    assert judge(cann="8.5.0").problem == "could not be read: nothing reads it"


def test_one_place_that_answers_is_enough():
    finding = judge(readings=[Reading(A, None, "gone"), Reading(B, "8.5.0")], cann="8.5.0")
    assert (finding.ok, finding.source) == (True, B)


def test_places_that_contradict_each_other_are_a_mismatch_even_if_one_is_right():
    finding = judge(readings=[Reading(A, "8.5.0"), Reading(B, "8.5.1")], cann="8.5.0")
    assert not finding.ok
    assert finding.found == "8.5.0 (place a); 8.5.1 (place b)"
    assert finding.problem == "the places that tell it disagree"


def test_places_that_write_one_version_in_two_ways_agree():
    assert judge(readings=[Reading(A, "8.5"), Reading(B, "8.5.0")], cann="8.5.0").ok


def test_one_wrong_chip_among_right_ones_is_refused():
    readings = [Reading(A, "NVIDIA H200"), Reading(B, "NVIDIA L4")]
    assert not judge(readings=readings, chip=["NVIDIA H200"]).ok


def test_long_answers_are_cut():
    finding = judge(readings=[Reading(A, "9" * 5000)], cann="8.5.0")
    assert (len(finding.found), finding.ok) == (201, False)


@pytest.mark.parametrize(
    ("chip", "generation"),
    [("Ascend910B3", "A2"), ("Ascend910_9392", "A3"), ("Ascend310P3", "_310P")],
)
def test_kernels_have_to_be_built_for_the_generation_of_the_stacks_chip(chip, generation):
    stack = settings.validate(
        settings.Stack,
        {
            "name": "s",
            "vendor": "ascend",
            "runtime": {"chip": [chip]},
            "supports": {"quantization": []},
        },
        "s",
    )
    (rule,) = [rule for rule in rules.build_rules(stack) if rule.requirement == "kernels"]
    assert rule.wanted == generation
    assert rule.accepts(generation) and not rule.accepts("none")

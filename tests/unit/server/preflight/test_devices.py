from __future__ import annotations

from pathlib import Path

import paper_machine
import pytest

from rwkv_server.preflight import stack_check, stack_file
from rwkv_server.preflight.devices import count_named, read_devices

MACHINES = Path(__file__).parent / "machines"
STACKS = {
    "910b3.yaml": {"vendor": "ascend", "runtimeRequirements": {"chip": ["Ascend910B3"]}},
    "h200.yaml": {"vendor": "nvidia"},
    "none.yaml": {"vendor": "cpu"},
}


def machine(name: str, **variables: str) -> paper_machine.PaperMachine:
    found = paper_machine.PaperMachine.load(MACHINES / name)
    found.variables.update(variables)
    return found


def judge(name: str, wanted: int | None, **variables: str) -> tuple[bool, str] | None:
    """Whether the number of devices is right, and what was found; None where nobody asks."""
    stack = stack_file.parse_stack(STACKS[name], "s.yaml")
    findings = stack_check.examine(stack, machine(name, **variables), wanted)
    found = {f.requirement: (f.ok, f.found) for f in findings}
    return found.get("devices")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 1),
        ("0,1", 2),
        ("0-3", 4),
        ("0-1, 6", 3),
        ("0,0", 1),
        ("Ascend910-0,Ascend910-5", 2),
        ("npu7", 1),
        ("GPU-5a1b2c3d-0000-1111-2222-333344445555", 1),
        ("MIG-5a1b2c3d-0000-1111-2222-333344445555", 1),
        ("", 0),
        ("void", 0),
        ("-1", 0),
        ("all", None),
        ("0,x", None),
        ("0,", None),
    ],
)
def test_a_variable_names_so_many_devices(text: str, count: int | None) -> None:
    assert count_named(text) == count


@pytest.mark.parametrize(
    ("name", "wanted", "variables", "verdict"),
    [
        pytest.param("910b3.yaml", 2, {}, (True, "2"), id="as many as wanted"),
        pytest.param("910b3.yaml", 1, {}, (False, "2"), id="one more is another pod's"),
        pytest.param("910b3.yaml", 4, {}, (False, "2"), id="too few"),
        pytest.param(
            "910b3.yaml", 2, {"ASCEND_VISIBLE_DEVICES": "0,1"}, (True, "2"), id="the runtime agrees"
        ),
        pytest.param(
            "910b3.yaml",
            2,
            {"ASCEND_VISIBLE_DEVICES": "0-7", "ASCEND_RT_VISIBLE_DEVICES": "0,1"},
            (True, "2"),
            id="the framework chooses from what the runtime gave",
        ),
        pytest.param(
            "910b3.yaml",
            1,
            {"ASCEND_RT_VISIBLE_DEVICES": "0"},
            (False, "2 (torch_npu); 1 (ASCEND_RT_VISIBLE_DEVICES)"),
            id="a variable that the framework doesn't follow",
        ),
        pytest.param(
            "910b3.yaml", 2, {"ASCEND_VISIBLE_DEVICES": "all"}, (True, "2"), id="no list at all"
        ),
        pytest.param("h200.yaml", 2, {}, (True, "2"), id="two GPUs"),
        pytest.param("h200.yaml", 1, {"CUDA_VISIBLE_DEVICES": ""}, (False, "0"), id="hidden"),
        pytest.param("h200.yaml", 1, {"CUDA_VISIBLE_DEVICES": "1"}, (True, "1"), id="one chosen"),
        pytest.param(
            "h200.yaml", 3, {"CUDA_VISIBLE_DEVICES": "0-2"}, (False, "2"), id="one isn't there"
        ),
        pytest.param(
            "h200.yaml", 1, {"CUDA_VISIBLE_DEVICES": "first"}, (False, "unknown"), id="no list"
        ),
        pytest.param("h200.yaml", None, {}, None, id="nobody asks"),
        pytest.param("none.yaml", 2, {}, None, id="processes on a CPU aren't devices"),
    ],
)
def test_an_engine_has_to_see_just_its_own_devices(
    name: str, wanted: int | None, variables: dict[str, str], verdict: tuple[bool, str] | None
) -> None:
    assert judge(name, wanted, **variables) == verdict


def test_where_no_tool_counts_a_variable_alone_is_believed_on_ascend_only() -> None:
    named = {"ASCEND_RT_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0"}
    ascend = read_devices("ascend", machine("none.yaml", **named))
    assert [reading.value for reading in ascend] == [None, "1"]
    nvidia = read_devices("nvidia", machine("none.yaml", **named))
    assert [reading.value for reading in nvidia] == [None, None]

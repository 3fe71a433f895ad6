"""Programs that image builds run: their output, their failures, their steps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import build
import command


def test_output_goes_to_the_log_and_lines_are_told(tmp_path: Path) -> None:
    told: list[str] = []
    log = tmp_path / "deep" / "a.log"
    words = [sys.executable, "-c", "import os; print('one'); print(os.environ['COLOUR'])"]
    command.run_logged("thing", words, log, {"COLOUR": "red"}, told.append)
    assert told == ["one", "red"]
    assert log.read_text() == "one\nred\n"


def test_a_failure_names_step_code_log_and_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    words = [sys.executable, "-c", "import sys; print('the reason', file=sys.stderr); sys.exit(3)"]
    with pytest.raises(command.CommandFailed) as failure:
        command.run_logged("image thing", words, log)
    for part in ("image thing", "exit code 3", str(log), "the reason"):
        assert part in str(failure.value)


def test_a_missing_or_failing_or_slow_program_has_no_output() -> None:
    assert command.output_of(["no-such-program-anywhere"]) is None
    assert command.output_of([sys.executable, "-c", "raise SystemExit(1)"]) is None
    assert command.output_of([sys.executable, "-c", "import time; time.sleep(9)"], 0.2) is None
    assert command.output_of([sys.executable, "-c", "print(1)"]) == "1\n"


@pytest.mark.parametrize(
    "line",
    [
        "STEP 3/4: RUN make it",
        "[2/4] STEP 3/4: COPY a b",
        "#12 [env 3/4] RUN make it",
    ],
)
def test_steps_of_both_builders_are_told(line: str) -> None:
    assert build.STEP.match(line)


@pytest.mark.parametrize("line", ["STEP 1/4: FROM x", "Collecting RUN", "#12 0.5 RUN 3"])
def test_other_lines_are_not(line: str) -> None:
    assert not build.STEP.match(line)

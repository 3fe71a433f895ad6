from __future__ import annotations

import json

import pytest

from rwkv_server.model import step_trace


def test_lines_are_whole_as_soon_as_they_are_written_and_padding_is_left_out(tmp_path):
    path = tmp_path / "steps.jsonl"
    writer = step_trace.open_trace({step_trace.KEY: str(path)})
    other = step_trace.open_trace({step_trace.KEY: str(path)})
    writer.step([1, 31, 0], [7, 0, 0], [3, 2, 0])
    other.cleared("model.layers.0", [2], [True], [False])
    first, second = map(json.loads, path.read_text().splitlines())
    assert first == {"step": [[1, 7, 3], [31, 0, 2]]}
    assert second == {"layer": "model.layers.0", "slots": [2], "before": [True], "after": [False]}


@pytest.mark.parametrize("config", [None, {}, {"other": 1}, object()])
def test_without_the_value_there_is_no_trace(config):
    assert step_trace.open_trace(config) is None

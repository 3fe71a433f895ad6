from __future__ import annotations

import json

import acceptance_run
import pytest

from rwkv_server.acceptance import scenario, trace, verify
from rwkv_server.acceptance.trace import Segment

STEPS = acceptance_run.play()


def test_the_counts_of_the_scenario_are_the_seeds_by_its_own_rules():
    by_computed = trace.count(STEPS, verify.PROMPTS)
    by_rows, by_length = trace.count_by_rows(STEPS), trace.count_by_length(STEPS)
    assert list(by_computed.values()) == [456, 16, 4, 5, 6, 14]
    assert list(by_rows.values()) == [455, 16, 5, 4, 5, 14]
    assert list(by_length.values()) == [454, 16, 6, 3, 4, 14]
    assert list(scenario.SEED_COUNTS) == list(trace.COUNTS)


def test_slots_that_change_hands_are_found():
    assert trace.reused_slots(STEPS) == {2: (True, False), 3: (True, False)}
    own = (Segment("a", 1, 0, 5, True, True, False),)
    assert trace.reused_slots([own, (Segment("a", 1, 1, 5, False),)]) == {}


def test_one_bad_reuse_of_a_slot_spoils_the_good_ones():
    def start(name, held, left):
        return (Segment(name, 1, 0, 2, True, held, left),)

    steps = [start("a", False, False), start("b", True, True), start("c", True, False)]
    assert trace.reused_slots(steps) == {2: (True, True)}
    steps = [start("a", False, False), start("b", False, False), start("c", True, False)]
    assert trace.reused_slots(steps) == {2: (False, False)}


def test_what_the_engine_writes_is_read_with_the_requests_names():
    lines = [
        {"step": [[1, 7, 3], [31, 0, 2]]},
        {"layer": "l.0", "slots": [2], "before": [False], "after": [False]},
        {"layer": "l.1", "slots": [2], "before": [True], "after": [False]},
    ]
    step = trace.parse_step(map(json.dumps, lines), ["r0", "r1"])
    assert step == (
        Segment("r0", 1, 7, 3, False),
        Segment("r1", 31, 0, 2, True, held=True, left=False),
    )


def test_names_and_rows_have_to_fit():
    with pytest.raises(ValueError, match="zip"):
        trace.parse_step(['{"step": [[1, 0, 2]]}'], ["r0", "r1"])


def test_a_trace_survives_its_file_and_its_hash_tells_any_change():
    assert trace.parse(trace.render(STEPS)) == STEPS
    assert trace.digest(STEPS) == trace.digest(acceptance_run.play())
    changed = [*STEPS[:-1], STEPS[-1][::-1]]
    assert trace.digest(changed) != trace.digest(STEPS)
    assert trace.digest(acceptance_run.play(24)) != trace.digest(STEPS)


def test_the_prompts_fit_a_byte_vocabulary_and_repeat_in_reverse():
    prompts = [prompt for _, prompt in scenario.requests()]
    assert [len(prompt) for prompt in prompts] == [1, 47, 180, 180, 47, 1]
    assert prompts == prompts[::-1]
    assert all(1 <= token <= 256 for prompt in prompts for token in prompt)

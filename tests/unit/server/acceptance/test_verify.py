from __future__ import annotations

from dataclasses import replace

import acceptance_run
import pytest

from rwkv_server.acceptance import verify

STEPS = acceptance_run.play()
RUN, OTHER = acceptance_run.run(), acceptance_run.run(24)
ANSWERS = acceptance_run.answers()


def failed(steps=STEPS, runs=(RUN, RUN, RUN), other=OTHER, reference=ANSWERS):
    return [check.name for check in verify.evaluate(steps, runs, other, reference) if not check.ok]


def with_segment(step, place, **changes):
    segments = list(STEPS[step])
    segments[place] = replace(segments[place], **changes)
    return [*STEPS[:step], tuple(segments), *STEPS[step + 1 :]]


WRONG = ANSWERS | {"r3": [1, 1]}
REUSE = next(
    (number, place)
    for number, step in enumerate(STEPS)
    for place, segment in enumerate(step)
    if segment.request == "r3" and segment.fresh
)


def test_a_clean_run_passes_every_check():
    assert failed() == []
    assert len(verify.evaluate(STEPS, [RUN] * 3, OTHER, ANSWERS)) == 9


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"reference": WRONG}, ["answers are the reference's"]),
        ({"reference": {}}, ["answers are the reference's"]),
        ({"runs": (RUN, replace(RUN, outputs=WRONG), RUN)}, ["answers are the same in 3 runs"]),
        ({"runs": (RUN, RUN)}, ["the trace is the same in 3 runs"]),
        ({"runs": (RUN, RUN, replace(RUN, digest="x"))}, ["the trace is the same in 3 runs"]),
        ({"other": replace(OTHER, digest=RUN.digest)}, ["the trace differs with a budget of 24"]),
        ({"other": replace(OTHER, outputs=WRONG)}, ["answers don't depend on the budget"]),
        ({"runs": (replace(RUN, outputs=WRONG),) * 3, "reference": WRONG},
         ["equal prompts get equal answers", "answers don't depend on the budget"]),
        ({"steps": with_segment(*REUSE, left=True)},
         ["slots change hands and are cleared", "the trace is the same in 3 runs"]),
        ({"steps": with_segment(*REUSE, held=False)},
         ["slots change hands and are cleared", "the trace is the same in 3 runs"]),
        ({"steps": STEPS[:-2]},
         ["every prompt token is read once, every request starts once",
          "the seed's figures follow from this trace by vLLM 0.18's rules",
          "the trace is the same in 3 runs"]),
    ],
)  # fmt: skip
def test_each_flaw_is_found_by_its_check(changes, names):
    assert failed(**changes) == names


def test_the_counts_stand_beside_the_seeds():
    lines = verify.render_counts(STEPS)
    assert lines[1].split() == ["prefill", "tokens", "456", "455", "454", "455"]
    assert lines[3].split() == ["mixed", "steps", "4", "5", "6", "6"]
    assert lines[7] == f"{'reused slots':<30}{'2, 3':>21}{'':>42}{'2, 3':>21}"
    assert lines[-1] == verify.EXPLANATION

"""The checks that make a run acceptable, and the table that compares it with the seed's.

Pure: runs in, checks and texts out. The same checks judge a run when it's made and its evidence
whenever it's read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rwkv_server.acceptance import scenario, trace

Outputs = Mapping[str, Sequence[int]]
PROMPTS = {name: len(prompt) for name, prompt in scenario.requests()}
EXPLANATION = (
    "We count by what was computed: a one-token prompt is a prefill. vLLM 0.18, which the seed ran "
    "on, tells the two apart by rows: a one-token prompt at the head of a batch is a decode there, "
    "which gives the seed's prefill tokens and fresh segments from our trace. The step that the "
    "second one-token prompt shares with another prompt's end counts as mixed, and not as one of "
    "several prefills, where that prompt is a decode: that gives the seed's other two."
)


@dataclass(frozen=True)
class Run:
    """What one fresh engine did: its trace's SHA-256 and its answers."""

    budget: int
    digest: str
    outputs: Outputs


@dataclass(frozen=True)
class Check:
    """One thing that has to be so; `told` says what was found."""

    name: str
    ok: bool
    told: str


def evaluate(
    steps: Sequence[trace.Step], runs: Sequence[Run], other: Run, reference: Outputs
) -> list[Check]:
    """Judge equal runs, one with another budget, and the reference's answers.

    Args:
        steps: the first run's trace.
        runs: all equal runs, the first one too.
        other: the run with the other budget.
        reference: answers of the plain reference.
    """
    digests = [run.digest for run in runs]
    outputs = runs[0].outputs
    unlike = [f"run {place + 1}" for place, run in enumerate(runs) if run.outputs != outputs]
    return [
        _check_counts(steps),
        _check_seed(steps),
        _check_slots(steps),
        _check_repeats(outputs),
        _equal("answers are the reference's", outputs, reference),
        Check(f"answers are the same in {scenario.RUNS} runs", not unlike, ", ".join(unlike)),
        Check(
            f"the trace is the same in {scenario.RUNS} runs",
            digests == [trace.digest(steps)] * scenario.RUNS,
            ", ".join(digest[:16] for digest in dict.fromkeys(digests)),
        ),
        Check(
            f"the trace differs with a budget of {other.budget}",
            other.digest not in digests,
            other.digest[:16],
        ),
        _equal("answers don't depend on the budget", other.outputs, outputs),
    ]


def render_counts(steps: Sequence[trace.Step]) -> list[str]:
    """The counts by all three rules beside the seed's, and why they differ."""
    columns = (
        trace.count(steps, PROMPTS),
        trace.count_by_rows(steps),
        trace.count_by_length(steps),
        scenario.SEED_COUNTS,
    )
    head = ("", "by computed", "by vLLM 0.18's rows", "1 token = decode", "seed")
    rows = [head, *((name, *(str(c[name]) for c in columns)) for name in trace.COUNTS)]
    reused = ", ".join(map(str, sorted(trace.reused_slots(steps))))
    rows.append(("reused slots", reused, "", "", ", ".join(map(str, scenario.SEED_REUSED_SLOTS))))
    lines = [f"{row[0]:<30}" + "".join(f"{cell:>21}" for cell in row[1:]) for row in rows]
    return [*lines, EXPLANATION]


def _check_counts(steps: Sequence[trace.Step]) -> Check:
    found = trace.count(steps, PROMPTS)
    wanted = (sum(PROMPTS.values()), len(PROMPTS))
    told = (found["prefill tokens"], found["fresh segments"])
    return Check(
        "every prompt token is read once, every request starts once",
        told == wanted and found["steps"] > 0,
        f"{told[0]} of {wanted[0]} tokens, {told[1]} of {wanted[1]} starts",
    )


def _check_seed(steps: Sequence[trace.Step]) -> Check:
    by_rows, by_length = trace.count_by_rows(steps), trace.count_by_length(steps)
    unexplained = [
        name
        for name, figure in scenario.SEED_COUNTS.items()
        if figure not in (by_rows[name], by_length[name])
    ]
    return Check(
        "the seed's figures follow from this trace by vLLM 0.18's rules",
        not unexplained,
        f"not so: {', '.join(unexplained)}" if unexplained else "all six",
    )


def _check_slots(steps: Sequence[trace.Step]) -> Check:
    reused = trace.reused_slots(steps)
    clean = all(held and not left for held, left in reused.values())
    told = ", ".join(
        f"slot {slot} {'held a state' if held else 'was empty'} and "
        f"{'still did' if left else 'was zero'} after clearing"
        for slot, (held, left) in sorted(reused.items())
    )
    return Check("slots change hands and are cleared", bool(reused) and clean, told or "none")


def _check_repeats(outputs: Outputs) -> Check:
    by_length: dict[int, set[tuple[int, ...]]] = {}
    for name, length in PROMPTS.items():
        by_length.setdefault(length, set()).add(tuple(outputs.get(name, ())))
    wrong = [length for length, answers in by_length.items() if len(answers) != 1]
    complete = all(len(outputs.get(name, ())) == scenario.OUTPUT_TOKENS for name in PROMPTS)
    told = f"not for the prompts of {wrong} tokens" if wrong else "3 prompts, twice each"
    return Check("equal prompts get equal answers", complete and not wrong, told)


def _equal(name: str, found: Outputs, wanted: Outputs) -> Check:
    differing = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
    return Check(name, not differing, f"not for {', '.join(differing)}" if differing else "all six")

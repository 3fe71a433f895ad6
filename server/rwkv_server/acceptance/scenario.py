"""The acceptance scenario: six prompts at once on four slots with a small token budget.

Lengths, order and budget are those by which the Ascend plugin that this repository grew from was
accepted. Prompts of one token, of more than a step and of many steps come twice, the second time in
reverse order, so that steps are mixed and slots change hands.
"""

from __future__ import annotations

from typing import Final

LENGTHS: Final = (1, 47, 180)
ORDER: Final = (0, 1, 2, 2, 1, 0)
SLOTS: Final = 4
BUDGET: Final = 32
OTHER_BUDGET: Final = 24
OUTPUT_TOKENS: Final = 2
RUNS: Final = 3
MAX_MODEL_LEN: Final = 256
# One request before the six, so that the very first slot isn't clean either.
WARM_UP: Final = (73, 102, 109, 109, 112)
WARM_UP_TOKENS: Final = 3

# What the Ascend plugin reported of its run on one 910B3 with vLLM 0.18.0.
SEED_COUNTS: Final = {
    "prefill tokens": 455,
    "steps": 16,
    "mixed steps": 6,
    "steps with several prefills": 3,
    "fresh segments": 5,
    "continued segments": 14,
}
SEED_REUSED_SLOTS: Final = (2, 3)


def prompt(length: int) -> list[int]:
    """The prompt of one length; ids fit every vocabulary, the bytes' included."""
    return [1 + (7919 * index + 31 * length) % 255 for index in range(length)]


def requests() -> list[tuple[str, list[int]]]:
    """The six requests in the order they are queued."""
    return [(f"r{place}", prompt(LENGTHS[kind])) for place, kind in enumerate(ORDER)]

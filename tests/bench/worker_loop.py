"""The inside of a bench's worker: commands on stdin, one JSON line for each on stdout.

A worker stays alive and idle between its turns, so that rounds of several workers interleave
without anyone starting anew. Runs in environments that have nothing of this repository's tests.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

PROMPT_TOKENS = 4
"""Tokens of each sequence's prompt before it decodes; llama_worker.cpp has the same."""

WARM_STEPS = 3


def prompt(sequence: int, length: int = PROMPT_TOKENS) -> list[int]:
    """The prompt that every worker reads; llama_worker.cpp has the same formula."""
    return [(sequence * 7919 + place * 104729) % 65000 + 1 for place in range(length)]


def serve(make: Callable[[], Mapping[str, Callable[..., dict[str, Any]]]]) -> None:
    """Build the commands with `make`, say so, then answer until stdin ends.

    Whatever libraries print goes to stderr: stdout carries answers only.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    commands = make()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        name, *numbers = line.split()
        answer = commands[name](*map(int, numbers))
        print(json.dumps(answer), file=answers, flush=True)

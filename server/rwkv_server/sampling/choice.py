"""The wishes of one request, as plain values. No torch and no vLLM here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The field of `vllm_xargs` that lets presence and frequency penalties fade.
DECAY_FIELD = "penalty_decay"
MAX_SEED = (1 << 63) - 1


@dataclass(frozen=True)
class Penalties:
    """What a token loses for having been seen.

    Attributes:
        presence: taken from each token that was written.
        frequency: taken for each time that a token was written.
        repetition: divides what speaks for a token of the prompt or the answer; 1 for none.
        decay: what is left of a count after each further token; 1 as OpenAI has it.
    """

    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    decay: float = 1.0

    @property
    def any(self) -> bool:
        """Whether they change anything."""
        return self.presence != 0 or self.frequency != 0 or self.repetition != 1


@dataclass(frozen=True)
class Choice:
    """Which tokens may be drawn, and how boldly.

    Attributes:
        temperature: 0 for the likeliest token.
        top_k: how many of the likeliest; 0 for all.
        min_p: the least probability, as a share of the likeliest token's.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


def check_seed(seed: int | None, answers: int) -> None:
    """Whether the seeds of all answers fit 64 bits; vLLM adds an answer's number to the seed.

    Raises:
        ValueError: one doesn't, with which runner V2 would end the engine.
    """
    most = MAX_SEED - (answers - 1)
    if seed is not None and seed > most:
        raise ValueError(f"seed must be at most {most} with n={answers}, got {seed}.")


def read_decay(extra: Mapping[str, Any] | None) -> float:
    """`penalty_decay` of a request's extra arguments.

    Raises:
        ValueError: it isn't a number from 0 to 1; vLLM answers the client with 400.
    """
    found = (extra or {}).get(DECAY_FIELD, 1.0)
    number = isinstance(found, (int, float)) and not isinstance(found, bool)
    if not number or not 0 <= found <= 1:
        raise ValueError(
            f"vllm_xargs.{DECAY_FIELD} must be a number from 0 to 1, got {str(found)[:100]!r}."
        )
    return float(found)

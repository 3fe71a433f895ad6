"""Random numbers that are a function of (seed, position, attempt) and keep no state.

So a seeded answer is the same alone and in a batch, and after its request was put aside and
resumed. Pure Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_BITS = 48


def uniforms(seed: int, position: int) -> Iterator[float]:
    """Numbers strictly between 0 and 1 for the token at `position` of an answer."""
    key = _mix(_mix(seed & _MASK) ^ position)
    for attempt in count():
        bits = _mix(key + attempt * _GOLDEN) >> (64 - _BITS)
        yield (bits + 0.5) / (1 << _BITS)


def _mix(value: int) -> int:
    """SplitMix64's output function: every bit of the input moves half of the output's."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)

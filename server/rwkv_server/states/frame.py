"""How a text that goes on from a state is given to the engine, and what of its answer counts. Pure.

A framed prompt is one placeholder, the tokens that the snapshot hasn't read, and the new text. The
placeholder stands for everything that the snapshot has read; the engine never computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Frame:
    """One prompt for the engine.

    Attributes:
        tokens: what the engine is given.
        base: tokens of the whole text that the placeholder stands for.
        resumed: whether there is a placeholder in front.
        new: how many tokens the client's new text has.
        cached: how many of those the snapshot has read, where it was found by their text.
    """

    tokens: tuple[int, ...]
    base: int
    resumed: bool
    new: int
    cached: int = 0

    @property
    def text(self) -> tuple[int, ...]:
        """The prompt's real tokens."""
        return self.tokens[1:] if self.resumed else self.tokens


def frame_new(tokens: Sequence[int]) -> Frame:
    """A text from its beginning."""
    return Frame(tuple(tokens), 0, False, len(tokens))


def frame_resumed(
    placeholder: int, consumed: int, pending: Sequence[int], new: Sequence[int]
) -> Frame:
    """A text that goes on from a snapshot of `consumed` tokens."""
    return Frame((placeholder, *pending, *new), consumed, True, len(new))


def frame_reused(placeholder: int, length: int, tokens: Sequence[int]) -> Frame:
    """A text whose first `length` tokens a snapshot has read."""
    return Frame((placeholder, *tokens[length:]), length, True, len(tokens), length)


@dataclass(frozen=True)
class Snapshot:
    """Which of the engine's two snapshots is what was saved, and what comes after it.

    Attributes:
        place: "final", or "prompt" if the final one has read more than counts.
        consumed: tokens of the whole text that it has read.
        pending: tokens that it hasn't.
    """

    place: Literal["final", "prompt"]
    consumed: int
    pending: tuple[int, ...]


def choose_snapshot(
    frame: Frame, output: Sequence[int], visible: Sequence[int], consumed: int | None
) -> Snapshot:
    """What to save of a generation.

    The final state counts if it has read nothing else than what counts. Around a stop string it
    may have read another token than the one for the text before it.

    Args:
        frame: what the engine was given.
        output: the tokens of its answer.
        visible: those that count.
        consumed: how many tokens its final state has read, the placeholder among them; None if
            there is no final state.
    """
    prompt = len(frame.tokens)
    hidden = 1 if frame.resumed else 0
    after = -1 if consumed is None else consumed - prompt
    if 0 <= after <= len(visible) and list(output[:after]) == list(visible[:after]):
        return Snapshot("final", frame.base + prompt + after - hidden, tuple(visible[after:]))
    return Snapshot("prompt", frame.base + prompt - hidden, tuple(visible))


def find_stop(text: str, stop: str, before: int) -> int | None:
    """Where `stop` begins in a text whose first `before` characters were looked at already."""
    at = text.find(stop, max(0, before - len(stop) + 1))
    return None if at < 0 else at

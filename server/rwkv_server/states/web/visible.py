"""Which tokens of a generation count: those whose text the client sees.

The token that ended it, and the text from a stop string on, don't.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rwkv_server.states.errors import StateError
from rwkv_server.states.events import Ended
from rwkv_server.states.frame import find_stop
from rwkv_server.states.web.text import Text

# Of vLLM's statuses those whose last token only ends the text.
_STOPPED = "stopped"


@dataclass(frozen=True)
class Told:
    """What vLLM's answer says of a generation's end.

    Attributes:
        finish: the finish reason.
        stop_reason: the stop string or token that ended it, if one did.
        completion_tokens: how many tokens the answer was made from.
    """

    finish: str
    stop_reason: str | int | None
    completion_tokens: int


def read_told(answer: Mapping[str, Any], usage: Mapping[str, Any]) -> Told | None:
    """What an answer, or a stream's chunk, says of the end; None if it says nothing."""
    for choice in answer.get("choices") or ():
        if choice.get("finish_reason") is not None:
            count = int(usage.get("completion_tokens", 0))
            return Told(choice["finish_reason"], choice.get("stop_reason"), count)
    return None


async def visible_tokens(
    text: Text, request: Mapping[str, Any], ended: Ended, prompt: int, told: Told
) -> tuple[int, ...]:
    """The tokens that count.

    Args:
        text: for the tokens around a stop string.
        request: the client's.
        ended: the engine's word.
        prompt: tokens of the prompt, as the engine counts.
        told: the answer's.

    Raises:
        StateError: a stop string ended it and can't be found.
    """
    output = tuple(ended.tokens[prompt:])
    if isinstance(told.stop_reason, str):
        output = output[: told.completion_tokens]
        fewest = request.get("min_tokens")
        unseen = fewest if isinstance(fewest, int) else 0
        return await _before_stop(text, output, told.stop_reason, unseen)
    return output[:-1] if ended.status == _STOPPED else output


async def _before_stop(
    text: Text, output: tuple[int, ...], stop: str, fewest: int
) -> tuple[int, ...]:
    whole = await text.decode(output)
    seen = len(await text.decode(output[:fewest]))
    at = find_stop(whole, stop, seen)
    if at is None:
        raise StateError(f"the stop {stop!r} isn't in the text that the engine made")
    for count in range(len(output) - 1, -1, -1):
        part = await text.decode(output[:count])
        if len(part) <= at and whole.startswith(part):
            rest = await text.encode(whole[len(part) : at], special=False)
            return (*output[:count], *rest)
    raise StateError("the tokens before a stop can't be told")

"""Which requests may go on from a prefix's snapshot unasked: those that can't tell. Pure.

With a snapshot the engine sees only the rest of the prompt. What looks at all of it, or counts
from its beginning, answers otherwise then, so such a request runs without, as if nothing was saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rwkv_server.states import wishes

# Fields that look at the prompt, and the values that don't: those refused beside a state, and more.
_LOOKING: Mapping[str, tuple[object, ...]] = {
    **wishes.REFUSED,
    "suffix": ("",),
    "truncation": ("disabled",),
    "enable_response_messages": (False,),
    "repetition_penalty": (1,),  # counts the prompt's tokens
    "thinking_token_budget": (),  # looks there for where the thought began
}


def may_reuse(request: Mapping[str, Any], *, seeds_by_place: bool) -> bool:
    """Whether the answer is the same, to the last token, when the beginning isn't read again.

    Args:
        request: the parsed body, without a state of its own.
        seeds_by_place: whether seeded draws depend on a token's place in the whole sequence, as
            with vLLM's model runner V2.
    """
    for field, harmless in _LOOKING.items():
        value = request.get(field)
        if value is not None and value not in harmless:
            return False
    if seeds_by_place and request.get("seed") is not None:
        return False
    if request.get("messages") == []:
        return False  # vLLM's to refuse
    return _one_text(request.get("prompt")) and _only_text(request.get("messages"))


def _one_text(prompt: Any) -> bool:
    """Whether a completion's prompt is one text, or one list of tokens, or not there."""
    if prompt is None or isinstance(prompt, str):
        return True
    return isinstance(prompt, list) and bool(prompt) and all(type(one) is int for one in prompt)


def _only_text(messages: Any) -> bool:
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, Mapping) or part.get("type", "text") != "text":
                return False
    return True

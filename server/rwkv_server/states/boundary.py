"""How much of a chat's prompt the next turn's prompt begins with. Pure.

A prompt ends where the reply begins, and a template may write something there that is gone when the
reply is told again, such as an open thought. Two made-up chats, one the beginning of the other,
show how many tokens that are. What the template writes for the same options is the same for every
chat, so they are asked about once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

# Fields of a chat request that a template's last words can depend on.
OPTIONS = ("model", "chat_template", "chat_template_kwargs", "reasoning_effort", "documents")

SHORT = ({"role": "user", "content": "a"},)
LONG = (*SHORT, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"})


def probes(body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two chat requests with the options of `body`, the second one turn longer."""
    options = {field: body[field] for field in OPTIONS if body.get(field) is not None}
    return {**options, "messages": list(SHORT)}, {**options, "messages": list(LONG)}


def options_key(body: Mapping[str, Any]) -> str:
    """Equal for chats whose prompts end alike, and short, however long their documents are."""
    options = json.dumps([body.get(field) for field in OPTIONS], sort_keys=True)
    return hashlib.blake2b(options.encode(), digest_size=20).hexdigest()


def find_passing(short: Sequence[int], long: Sequence[int]) -> tuple[int, ...]:
    """The last tokens of the shorter chat's prompt that the longer one's doesn't have there."""
    same = 0
    while same < min(len(short), len(long)) and short[same] == long[same]:
        same += 1
    return tuple(short[same:])


def stable_length(tokens: Sequence[int], passing: Sequence[int]) -> int:
    """Tokens of a prompt that the next turn's begins with: all, or all but a passing end.

    One token more is left out before a passing end: other words there may be joined with it.
    """
    cut = len(tokens) - len(passing)
    if passing and cut > 1 and list(tokens[cut:]) == list(passing):
        return cut - 1
    return len(tokens)

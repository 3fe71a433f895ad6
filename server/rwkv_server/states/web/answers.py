"""What answers say of states: the field `state`, state-cache.v1's, and usage without our framing.

A framed prompt has tokens that the client never sent, and lacks those that the snapshot has read.
Usage counts the client's new text.
"""

from __future__ import annotations

from typing import Any

from rwkv_server.states.frame import Frame
from rwkv_server.states.turn import Answer
from rwkv_server.states.wishes import Wish


def tell(wish: Wish, answer: Answer) -> dict[str, Any]:
    """The fields that an answer gets."""
    if wish.dialect == "none":
        return {}
    if wish.dialect == "v1":
        return {} if answer.record is None else {"rwkv_state_ref": answer.record.ref}
    record, parent = answer.record, answer.parent
    state: dict[str, Any] = {
        "ref": None if record is None else record.ref,
        "parent": None if parent is None else parent.ref,
        "resumed": parent is not None,
        "source": answer.source,
        "consumed_tokens": None if record is None else record.consumed_tokens,
        "pending_tokens": None if record is None else len(record.pending),
        "expires_at": None if record is None else record.expires_at,
        "durable": record is not None and answer.durable,
    }
    if wish.session is not None:
        state["session"] = wish.session
    if answer.error is not None:
        state["error"] = {"code": answer.error.code, "message": answer.error.message}
    return {"state": state}


def correct_usage(usage: dict[str, Any], frame: Frame) -> None:
    """Count the client's prompt, in place."""
    framed = len(frame.tokens) - frame.new
    usage["prompt_tokens"] -= framed
    if "total_tokens" in usage:
        usage["total_tokens"] -= framed
    details = usage.get("prompt_tokens_details")
    if frame.cached or isinstance(details, dict):
        usage["prompt_tokens_details"] = {**(details or {}), "cached_tokens": frame.cached}

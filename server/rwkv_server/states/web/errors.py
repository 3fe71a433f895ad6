"""Refusals of the state API as HTTP answers."""

from __future__ import annotations

from rwkv_server.states.errors import StateError
from rwkv_server.web.errors import Refusal


def refusal_of(error: StateError) -> Refusal:
    """The error in OpenAI's shape."""
    headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    return Refusal(error.status, error.code, error.message, error.param, headers)

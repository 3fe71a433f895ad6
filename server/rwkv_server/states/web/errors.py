"""Refusals of the state API as HTTP answers, and answers of another engine as refusals again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rwkv_server.states import errors
from rwkv_server.states.errors import StateError
from rwkv_server.web.errors import Refusal

_BY_CODE = {(kind.status, kind.code): kind for kind in StateError.__subclasses__()}


def refusal_of(error: StateError) -> Refusal:
    """The error in OpenAI's shape."""
    headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    return Refusal(error.status, error.code, error.message, error.param, headers)


def error_of(status: int, answer: Any) -> StateError:
    """What another engine refused with; an answer of any other kind is no answer."""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if isinstance(error, Mapping):
        kind = _BY_CODE.get((status, str(error.get("code"))))
        if kind is not None:
            return kind(str(error.get("message")))
    return errors.StateStoreUnavailable(
        f"the engine that holds the state answered {status}; try again", retry_after_s=5
    )

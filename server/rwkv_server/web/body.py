"""Look at a request's JSON before vLLM does.

Fields that steer vLLM's internals are refused wherever vLLM would pick them up, and so is JSON that
two parsers can read in two ways: the router keys sessions on the same bytes.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from starlette.types import Message, Receive

from rwkv_server.web import shape
from rwkv_server.web.errors import Refusal

MAX_BODY_BYTES = 64 << 20

# Answers to one request: each is a sequence, and one such request could stop all others.
MAX_CHOICES = 128

# The variable that says how many tokens the model has.
VOCABULARY = "RWKV_VOCABULARY"

# The last is how our own parameters travel on routes without a field for them.
FORBIDDEN = ("kv_transfer_params", "ec_transfer_params", "cache_salt", "rwkv_transfer")
CARRIER = "vllm_xargs"

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


async def check_request(receive: Receive, vocabulary: int | None) -> Receive | None:
    """Read and check a request's body, for a model of so many tokens.

    Returns a channel for the app that gives the body again, or None if the client went away. Only
    the channel holds the body, so that it is freed while the answer streams.
    """
    content = await read_body(receive)
    if content is None:
        return None
    check_body(content, vocabulary)
    return replay_body(content, receive)


async def read_body(receive: Receive, limit: int = MAX_BODY_BYTES) -> bytes | None:
    """The whole request body, or None if the client went away; 413 above `limit` bytes."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise Refusal(
                413, "request_too_large", f"The request body is larger than {limit} bytes."
            )
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def replay_body(body: bytes, receive: Receive) -> Receive:
    """A channel that gives `body` first and then whatever `receive` has, such as a disconnect."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return pending.pop() if pending else await receive()

    return receive_again


def check_body(body: bytes, vocabulary: int | None = None) -> dict[str, Any]:
    """The request in a body; a Refusal with 400 if vLLM must not see it.

    Args:
        body: the whole body.
        vocabulary: how many tokens the model has; None leaves their numbers to vLLM.
    """
    request = _parse(body)
    if not isinstance(request, dict):
        raise Refusal(400, "invalid_json", "The request body must be a JSON object.")
    carried = request.get(CARRIER)
    for name in FORBIDDEN:
        if name in request:
            _refuse_field(name)
        if isinstance(carried, dict) and name in carried:
            _refuse_field(f"{CARRIER}.{name}")
    _check_choices(request.get("n"))
    if vocabulary is not None:
        _check_stops(request.get("stop_token_ids"), vocabulary)
    shape.check_shape(request, body)
    if _SURROGATE.search(body):
        _check_text(request)
    return request


def _check_choices(count: Any) -> None:
    """Bound `n` in whatever form vLLM reads a number from; what isn't one vLLM refuses."""
    try:
        too_many = float(count) > MAX_CHOICES
    except OverflowError:
        too_many = count > 0
    except (TypeError, ValueError):
        too_many = False
    if too_many:
        raise Refusal(400, "invalid_value", f"n must be at most {MAX_CHOICES}.", param="n")


def _check_stops(tokens: Any, vocabulary: int) -> None:
    """Refuse stops that are no tokens: with min_tokens they would end vLLM 0.18 for everybody."""
    for token in tokens if isinstance(tokens, list) else ():
        try:
            inside = 0 <= float(token) < vocabulary
        except OverflowError:
            inside = False
        except (TypeError, ValueError):
            continue  # what isn't a number vLLM refuses
        if not inside:
            text = f"stop_token_ids holds {str(token)[:40]}, wanted 0 to {vocabulary - 1}."
            raise Refusal(400, "invalid_value", text, param="stop_token_ids")


def _parse(body: bytes) -> Any:
    try:
        text = body.decode("utf-8")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise Refusal(400, "invalid_json", "The request body is not UTF-8.") from None
    except json.JSONDecodeError as error:
        raise Refusal(
            400, "invalid_json", f"The request body is not JSON: {error.msg} at {error.pos}."
        ) from None
    except (RecursionError, ValueError):
        raise Refusal(
            400, "invalid_json", "The request body nests too deeply or holds too long a number."
        ) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)[:100]
        raise Refusal(
            400, "duplicate_key", f"The key {json.dumps(twice)} is there twice.", param=twice
        )
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise Refusal(400, "invalid_json", f"{name} is not JSON.")


def _refuse_field(name: str) -> NoReturn:
    raise Refusal(
        400, "unsupported_field", f"The field {name} can't be set by clients.", param=name
    )


def _check_text(value: Any) -> None:
    """Refuse half of a surrogate pair, which no tokenizer takes."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item.keys())
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, str) and any("\ud800" <= char <= "\udfff" for char in item):
            raise Refusal(400, "invalid_json", "A string holds half of a surrogate pair.")

"""What a request for a Response wishes of states. Pure.

`store` is OpenAI's word for keeping a Response, and true where nothing is said. Said, it is a
promise; unsaid, a Response that can't be kept is answered all the same and tells so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rwkv_server.states import refs, wishes
from rwkv_server.states.errors import StateUnsupportedOption
from rwkv_server.states.wishes import Wish

PREFIX = "resp_"


@dataclass(frozen=True)
class ResponseWish:
    """A wish, and what is special about a Response's.

    Attributes:
        wish: None for a Response that needs no state.
        keep: whether the Response is kept, with the state it ends at.
        insists: whether a Response that can't be kept is to be refused.
        previous: the Response it goes on from.
    """

    wish: Wish | None
    keep: bool
    insists: bool
    previous: str | None


def read_response_wish(
    request: Mapping[str, Any], headers: Mapping[str, str], made: str
) -> ResponseWish:
    """The request's wish.

    Args:
        request: the parsed body.
        headers: in lower case.
        made: the Response's id, should it be kept; its state has the same name.

    Raises:
        StateInvalidRef, StateUnsupportedOption: naming the field.
    """
    _refuse(request)
    previous = request.get("previous_response_id")
    if previous is not None:
        refs.check_id(previous, "previous_response_id")
    own = wishes.read_wish(request, headers)
    keep = request.get("store") is not False
    if own is None and previous is None and not keep:
        return ResponseWish(None, False, False, None)
    wish = own or Wish(wishes.read_tenant(headers))
    if previous is not None:
        if wish.ref is not None or (wish.session is not None and not wish.opens):
            raise StateUnsupportedOption(
                "previous_response_id and state both name what to go on from: send one",
                param="previous_response_id",
            )
        wish = replace(wish, ref=previous)
    if keep:
        if wish.name is not None:
            raise StateUnsupportedOption(
                "the state of a stored Response has the Response's id: leave the name out, or set "
                "store to false",
                param="state.save",
            )
        wish = replace(wish, save=True, made=made)
    insists = request.get("store") is True or own is not None or previous is not None
    return ResponseWish(wish, keep, insists, previous)


def unasked_wish(request: Mapping[str, Any], tenant: str) -> ResponseWish:
    """Of a Response that may go on from a beginning all the same."""
    durable = request.get("store") is not False
    wish = Wish(tenant, dialect="none", reuse=True, remember=True, durable=durable)
    return ResponseWish(wish, False, False, None)


def _refuse(request: Mapping[str, Any]) -> None:
    for field in ("store", "stream"):
        # vLLM reads "off" and 0 as false, too: half of what they mean would be done.
        if not isinstance(request.get(field), bool | None):
            raise StateUnsupportedOption(
                f"{field} is {str(request[field])[:100]!r}, wanted true or false", param=field
            )
    if request.get("background"):
        raise StateUnsupportedOption(
            "background isn't offered: leave it out and stream the answer", param="background"
        )
    if request.get("conversation") is not None:
        raise StateUnsupportedOption(
            "conversation isn't offered: use previous_response_id, or state.session",
            param="conversation",
        )

"""What a request wishes of a state, read from its body and headers. Pure.

Two dialects: our own field `state`, and `vllm_xargs` of vllm-rwkv.state-cache.v1. What can't be
exact together with a state is refused here, before anything is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rwkv_server.states import refs
from rwkv_server.states.errors import StateInvalidRef, StateUnsupportedOption

DEFAULT_TENANT = "default"
CARRIER = "vllm_xargs"
READ, WRITE, LEASE = "rwkv_state_read_ref", "rwkv_state_write_ref", "rwkv_state_read_lease"
AUTO = "auto"
MAX_TTL_S = 10 * 365 * 86400

_FIELDS = frozenset({"ref", "save", "ttl_s", "session"})
# What a request may not have beside a state, and the values that change nothing.
REFUSED: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "echo": (False,),
    "prompt_logprobs": (),
    "prompt_embeds": (),
    "suffix": (),
    "truncate_prompt_tokens": (),
    "return_token_ids": (False,),
    "return_prompt_text": (False,),
    "continue_final_message": (False,),
    "background": (False,),
}

Dialect = Literal["state", "v1", "none"]


@dataclass(frozen=True)
class Wish:
    """What is to happen to the state of one generation.

    Attributes:
        ref: the state to continue; None for a new text, or for a session's head.
        save: whether the state at the end gets a name.
        name: the client's own name for it; None for one of ours.
        made: a name of ours that was chosen before; None for a new one.
        session: the session that this is a turn of.
        opens: whether the session begins with this turn.
        ttl_s: how long the saved state lives; None for the store's default.
        dialect: how the answer is to tell it, "none" for not at all.
        reuse: whether a snapshot of the text's beginning may stand for it.
        remember: whether one is left for longer texts.
        durable: whether what is left may go to the store, where nothing but its time ends it.
        last_role: whose message the text ends with, if it is messages that nobody answers.
    """

    tenant: str
    ref: str | None = None
    save: bool = False
    name: str | None = None
    session: str | None = None
    opens: bool = False
    ttl_s: float | None = None
    dialect: Dialect = "state"
    made: str | None = None
    reuse: bool = False
    remember: bool = False
    durable: bool = False
    last_role: str | None = None


def read_wish(request: Mapping[str, Any], headers: Mapping[str, str]) -> Wish | None:
    """The request's wish, or None if it has none.

    Args:
        request: the parsed body.
        headers: in lower case.

    Raises:
        StateInvalidRef, StateUnsupportedOption: naming the field.
    """
    carried = request.get(CARRIER)
    xargs = carried if isinstance(carried, Mapping) else {}
    old = READ in xargs or WRITE in xargs
    ours = request.get("state") is not None
    if not ours and not old:
        return None
    if ours and old:
        raise StateUnsupportedOption(
            f"state and {CARRIER}.{READ if READ in xargs else WRITE} are both set: use one",
            param="state",
        )
    tenant = read_tenant(headers)
    wish = _read_state(request, headers, tenant) if ours else _read_v1(xargs, tenant)
    check_options(request)
    return wish


def read_tenant(headers: Mapping[str, str]) -> str:
    """Whose states they are; the router says so, and without keys there is one tenant."""
    return refs.check_id(headers.get("x-rwkv-tenant") or DEFAULT_TENANT, "x-rwkv-tenant")


def without_wish(request: Mapping[str, Any]) -> dict[str, Any]:
    """The request as vLLM is to see it."""
    plain = {name: value for name, value in request.items() if name not in ("state", "session_id")}
    carried = request.get(CARRIER)
    if isinstance(carried, Mapping):
        plain[CARRIER] = {k: v for k, v in carried.items() if k not in (READ, WRITE, LEASE)}
    return plain


def check_options(request: Mapping[str, Any]) -> None:
    """Refuse what can't be exact together with a state.

    Raises:
        StateUnsupportedOption: naming the first such field.
    """
    for name, harmless in REFUSED.items():
        value = request.get(name)
        if value is not None and value not in harmless:
            raise StateUnsupportedOption(
                f"{name} can't be used together with a state: leave one of them out", param=name
            )
    stream = request.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise _wrong("stream", stream, "true or false")
    for message in _list(request.get("messages")):
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in _list(content):
            if not isinstance(part, Mapping) or part.get("type", "text") != "text":
                raise StateUnsupportedOption(
                    "messages holds content that isn't text, which no state can have",
                    param="messages",
                )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _read_state(request: Mapping[str, Any], headers: Mapping[str, str], tenant: str) -> Wish:
    state = request["state"]
    if not isinstance(state, Mapping):
        raise _wrong("state", state, "an object")
    for field in state:
        if field not in _FIELDS:
            raise StateUnsupportedOption(
                f"state.{str(field)[:100]} isn't known; wanted one of {', '.join(sorted(_FIELDS))}",
                param="state",
            )
    ref = state.get("ref")
    session, opens = _read_session(request, headers, state)
    save, name = _read_save(state.get("save"), session)
    if ref is not None:
        refs.check_id(ref, "state.ref")
        if session is not None and not opens:
            raise StateUnsupportedOption(
                "state.ref and state.session true are both set: a session goes on from its own "
                'head; "new" begins one from a ref',
                param="state.ref",
            )
    if ref is not None and ref == name:
        raise StateInvalidRef("state.save is the name of state.ref: choose another", param="state")
    return Wish(tenant, ref, save, name, session, opens, _read_ttl(state.get("ttl_s")))


def _read_session(
    request: Mapping[str, Any], headers: Mapping[str, str], state: Mapping[str, Any]
) -> tuple[str | None, bool]:
    wanted = state.get("session")
    if wanted is None or wanted is False:
        return None, False
    if wanted is not True and wanted != "new":
        raise _wrong("state.session", wanted, '"new" or true')
    header, field = headers.get("x-session-id") or None, request.get("session_id")
    if header is not None and field is not None and header != field:
        raise StateInvalidRef(
            "the header x-session-id and the field session_id name two sessions: send one",
            param="session_id",
        )
    if header is None and field is None:
        raise StateInvalidRef(
            "state.session needs the session's id: send it as the header x-session-id or the "
            "field session_id",
            param="session_id",
        )
    session = refs.check_id(field if header is None else header, "session_id")
    return session, wanted == "new"


def _read_save(value: object, session: str | None) -> tuple[bool, str | None]:
    if value is None or value is False:
        if value is False and session is not None:
            raise StateUnsupportedOption(
                "state.save is false, but a session's turns are saved: leave it out",
                param="state.save",
            )
        return session is not None, None
    if value is True:
        return True, None
    if not isinstance(value, str):
        raise _wrong("state.save", value, "true or a name")
    return True, refs.check_name(value, "state.save")


def _read_ttl(value: object) -> float | None:
    if value is None:
        return None
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if number is not None and 1 <= number <= MAX_TTL_S:
        return float(number)
    raise _wrong("state.ttl_s", value, f"seconds, from 1 to {MAX_TTL_S}")


def _read_v1(xargs: Mapping[str, Any], tenant: str) -> Wish:
    read, write = xargs.get(READ), xargs.get(WRITE)
    ref = None if read is None else refs.check_id(read, READ)
    if write is None or write == AUTO:
        name = None
    else:
        name = refs.check_name(write, WRITE)
    if ref is not None and ref == name:
        raise StateInvalidRef(f"{READ} and {WRITE} are the same: choose another", param=WRITE)
    return Wish(tenant, ref, write is not None, name, dialect="v1")


def _wrong(field: str, value: object, wanted: str) -> StateUnsupportedOption:
    return StateUnsupportedOption(f"{field} is {str(value)[:100]!r}, wanted {wanted}", param=field)

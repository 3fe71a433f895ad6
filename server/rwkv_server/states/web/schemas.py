"""What the state API takes and gives, as models: they check requests and make its schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rwkv_server.states.record import Record
from rwkv_server.states.wishes import MAX_TTL_S

Ttl = Annotated[float, Field(ge=1, le=MAX_TTL_S, description="Seconds to live, from now.")]
Name = Annotated[
    str,
    Field(
        max_length=128,
        description="A name of your own; only in a store that all pods share. Left out, the "
        "server makes a ref.",
    ),
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


class ForkState(_Body):
    """What a fork is called and how long it lives."""

    name: Name | None = None
    ttl_s: Ttl | None = None


class UploadFields(ForkState):
    """What may be said beside an uploaded file, as text."""

    model_config = ConfigDict(strict=False)


class TouchState(_Body):
    """A new time to live; left out, the deployment's default."""

    ttl_s: Ttl | None = None


class CreateState(ForkState):
    """A state from a text, or from the messages of a chat."""

    model: str | None = None
    text: Annotated[str, Field(min_length=1)] | None = None
    messages: Annotated[list[dict[str, Any]], Field(min_length=1)] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> CreateState:
        if (self.text is None) == (self.messages is None):
            raise ValueError("either text or messages is needed")
        return self

    def prompt(self) -> dict[str, Any]:
        """What the engine reads."""
        return self.model_dump(exclude_none=True, exclude={"name", "ttl_s"})


class StateObject(BaseModel):
    """A saved state: what it is of, never what is in it."""

    model_config = ConfigDict(protected_namespaces=())

    ref: str
    object: Literal["state"] = "state"
    parent: str | None
    session: str | None
    model_digest: str
    tokenizer_digest: str
    layout_version: int
    dtype: str
    adapters: str
    nbytes: int
    sha256: str
    consumed_tokens: int
    pending_tokens: int
    finish_reason: str
    last_role: str | None
    created_at: float
    expires_at: float | None
    epoch: str
    durable: bool


def show(record: Record, durable: bool) -> StateObject:
    """A record as its owner sees it."""
    return StateObject(
        ref=record.ref,
        parent=record.parent,
        session=record.session,
        model_digest=record.fingerprint.model,
        tokenizer_digest=record.fingerprint.tokenizer,
        layout_version=record.fingerprint.layout,
        dtype=record.fingerprint.dtype,
        adapters=record.fingerprint.adapters,
        nbytes=record.nbytes,
        sha256=record.sha256,
        consumed_tokens=record.consumed_tokens,
        pending_tokens=len(record.pending),
        finish_reason=record.finish_reason,
        last_role=record.last_role,
        created_at=record.created_at,
        expires_at=record.expires_at,
        epoch=record.epoch,
        durable=durable,
    )


class StateList(BaseModel):
    """A page of states in order of their names; `after=<last_id>` asks for the next."""

    object: Literal["list"] = "list"
    data: list[StateObject]
    has_more: bool
    last_id: str | None


class Deleted(BaseModel):
    """A state that is gone."""

    ref: str
    object: Literal["state"] = "state"
    deleted: Literal[True] = True


class Erased(BaseModel):
    """How many states are gone."""

    object: Literal["erasure"] = "erasure"
    session: str | None
    states: int


class SessionObject(BaseModel):
    """Where a session is.

    Attributes:
        ref: the state that its next turn continues.
        turns: how many were committed.
        busy: whether one is under way.
    """

    id: str
    object: Literal["session"] = "session"
    ref: str
    turns: int
    busy: bool


class ErrorBody(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(BaseModel):
    """OpenAI's shape of an error."""

    error: ErrorBody

"""The record of a saved state: what it is of, never what is in it. Pure.

A record is immutable once committed. It lies beside its snapshot as JSON, and its existence is what
makes the snapshot count.
"""

from __future__ import annotations

from typing import Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from rwkv_server.states.errors import StateCorrupt

FORMAT: Literal[1] = 1

Finish = Literal["stop", "length", "tool_calls", "repetition", "prompt", "initial", "import"]


class Fingerprint(BaseModel):
    """What must be equal for a snapshot to mean the same to another engine.

    Attributes:
        model: digest of the weights.
        tokenizer: digest of the tokenizer's files.
        layout: version of the snapshot's layout.
        dtype: of the token shifts, such as "float32"; the WKV state is float32 always.
        adapters: digest of what was loaded beside the weights; empty for nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model: str
    tokenizer: str
    layout: int
    dtype: str
    adapters: str = ""


class Record(BaseModel):
    """One saved state.

    Attributes:
        ref: its name, unique for the tenant.
        parent: the state it continues, or was forked from.
        session: the session it is a turn of.
        nbytes: size of the snapshot's file.
        sha256: of the snapshot's file, in hex; links the two.
        consumed_tokens: tokens that are in the snapshot since its conversation's beginning.
        pending: token ids that come after the snapshot and before anything new.
        text_tokens: consumed and pending together.
        finish_reason: how the text ended.
        last_role: whose message the text ends with, if it was made from messages that nobody
            answered.
        created_at, expires_at: seconds since 1970; None never expires.
        epoch: of the store it was written to.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    format: Literal[1] = FORMAT
    ref: str
    parent: str | None
    tenant: str
    session: str | None
    fingerprint: Fingerprint
    nbytes: int = Field(ge=0)
    sha256: str
    consumed_tokens: int = Field(ge=0)
    pending: tuple[int, ...]
    finish_reason: Finish
    last_role: str | None = None
    created_at: float
    expires_at: float | None
    epoch: str

    @property
    def text_tokens(self) -> int:
        """Tokens of the whole conversation so far."""
        return self.consumed_tokens + len(self.pending)

    def has_expired(self, now: float) -> bool:
        """Whether its time is over at `now`, seconds since 1970."""
        return self.expires_at is not None and now >= self.expires_at


def dump_record(record: Record) -> bytes:
    """The record as it lies in the store."""
    return record.model_dump_json().encode()


def parse_record(content: bytes, ref: str) -> Record:
    """A record from the store.

    Raises:
        StateCorrupt: it isn't one, or is of a later version.
    """
    try:
        return Record.model_validate_json(content)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise StateCorrupt(
            f"the record of state {ref} can't be read: {where}: {first['msg']}. If no later "
            f"version wrote it, DELETE /v1/states/{ref} removes it."
        ) from None

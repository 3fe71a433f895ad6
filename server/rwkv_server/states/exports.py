"""Snapshots as files that leave the server and come back: safetensors with the record inside. Pure.

An export is the stored file with another head: its metadata has the whole record. Of an import only
tensors, counts, pending tokens and the last message's role are believed; what says that it is of
another model refuses it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rwkv_server.states.errors import StateCorrupt, StateIncompatible
from rwkv_server.states.record import FORMAT, Fingerprint, Record

RECORD, SUM = "rwkv_state", "rwkv_sha256"
"""The metadata keys of the record, and of the digest of the record and all tensors."""

_MAX_CONSUMED = 1 << 53
_MAX_ROLE = 64
_COMPARED = ("model", "tokenizer", "layout", "dtype", "adapters")


@dataclass(frozen=True)
class Limits:
    """What an import's numbers may be.

    Attributes:
        vocabulary: tokens of the model.
        max_model_len: pending tokens are prefilled with the next turn.
    """

    vocabulary: int
    max_model_len: int

    @property
    def pending(self) -> int:
        """So many leave room for the placeholder, a new token and an answer's."""
        return self.max_model_len - 3


@dataclass(frozen=True)
class Told:
    """What an import says of itself and is believed."""

    consumed_tokens: int = 0
    pending: tuple[int, ...] = ()
    last_role: str | None = None


def embed(content: bytes, record: Record) -> tuple[bytes, memoryview]:
    """The export of a stored file, whose sum was checked: its new head, and the tensors' bytes."""
    start = _start(content)
    tensors, told = memoryview(content)[start:], record.model_dump_json()
    head = json.loads(content[8:start])
    head["__metadata__"] = {"format": "pt", RECORD: told, SUM: _sum(told, tensors)}
    encoded = json.dumps(head, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded, tensors


def check_sum(content: bytes, metadata: Mapping[str, str]) -> None:
    """Compare an import with the digest that it was exported with; one without has no promise.

    Raises:
        StateCorrupt: it was changed on its way.
    """
    if SUM not in metadata:
        return
    found = _sum(metadata.get(RECORD, ""), memoryview(content)[_start(content) :])
    if found != metadata[SUM]:
        raise StateCorrupt(
            "the file isn't what was exported: its SHA-256 is another; export it again"
        )


def _start(content: bytes) -> int:
    """Where the tensors begin."""
    return 8 + int.from_bytes(content[:8], "little")


def _sum(record: str, tensors: memoryview) -> str:
    digest = hashlib.sha256(record.encode("utf-8", "surrogatepass"))
    digest.update(tensors)
    return digest.hexdigest()


def read_told(metadata: Mapping[str, str], ours: Fingerprint, limits: Limits) -> Told:
    """What an import's metadata says; a file without a record is a state of no text.

    Raises:
        StateIncompatible: it is of another model or a later version; says what and wanted what.
        StateCorrupt: its numbers can't be true.
    """
    if RECORD not in metadata:
        return Told()
    try:
        record = json.loads(metadata[RECORD], object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise StateCorrupt(f"the file's {RECORD} is no JSON") from None
    if not isinstance(record, Mapping):
        raise StateCorrupt(f"the file's {RECORD} is no JSON object")
    _check_version(record)
    _check_fingerprint(record.get("fingerprint"), ours)
    return _read_counts(record, limits)


def _check_version(record: Mapping[str, Any]) -> None:
    found = record.get("format")
    if found != FORMAT:
        raise StateIncompatible(
            f"the state's format: found {json.dumps(found)[:100]}, wanted {FORMAT}; import it on "
            "a server of the version that made it"
        )


def _check_fingerprint(found: Any, ours: Fingerprint) -> None:
    if not isinstance(found, Mapping):
        raise StateCorrupt("the file's record has no fingerprint")
    for name in _COMPARED:
        theirs, wanted = found.get(name), getattr(ours, name)
        if theirs != wanted:
            raise StateIncompatible(
                f"the state's {name}: found {json.dumps(theirs)[:100]}, wanted "
                f"{json.dumps(wanted)}; a state only continues on the model that made it"
            )


def _read_counts(record: Mapping[str, Any], limits: Limits) -> Told:
    consumed, pending = record.get("consumed_tokens"), record.get("pending")
    if type(consumed) is not int or not 0 <= consumed < _MAX_CONSUMED:
        raise StateCorrupt(
            f"the state's consumed_tokens: found {json.dumps(consumed)[:100]}, wanted a count"
        )
    if not isinstance(pending, list) or len(pending) > limits.pending:
        raise StateCorrupt(f"the state's pending: wanted a list of at most {limits.pending} tokens")
    for token in pending:
        if type(token) is not int or not 0 <= token < limits.vocabulary:
            raise StateCorrupt(
                f"the state's pending: found {json.dumps(token)[:100]}, wanted tokens from 0 to "
                f"{limits.vocabulary - 1}"
            )
    return Told(consumed, tuple(pending), _read_role(record.get("last_role")))


def _read_role(found: Any) -> str | None:
    if found is not None and (not isinstance(found, str) or len(found) > _MAX_ROLE):
        raise StateCorrupt(
            f"the state's last_role: found {json.dumps(found)[:100]}, wanted a message's role"
        )
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found

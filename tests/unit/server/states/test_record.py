"""Records: there and back, and what isn't one."""

from __future__ import annotations

import json

import pytest

from rwkv_server.states.errors import StateCorrupt
from rwkv_server.states.record import Fingerprint, Record, dump_record, parse_record

RECORD = Record(
    ref="p0-a1b2c3d4-x",
    parent=None,
    tenant="team-a",
    session="s1",
    fingerprint=Fingerprint(model="sha256:1", tokenizer="sha256:2", layout=1, dtype="float32"),
    nbytes=10,
    sha256="ab",
    consumed_tokens=7,
    pending=(65, 66),
    finish_reason="length",
    created_at=1000.0,
    expires_at=1060.0,
    epoch="a1b2c3d4",
)


def test_a_record_comes_back_as_it_was() -> None:
    assert parse_record(dump_record(RECORD), RECORD.ref) == RECORD
    assert RECORD.text_tokens == 9


@pytest.mark.parametrize(("now", "over"), [(1059.9, False), (1060.0, True), (2000.0, True)])
def test_expiry_counts_from_its_second(now: float, over: bool) -> None:
    assert RECORD.has_expired(now) is over
    assert not RECORD.model_copy(update={"expires_at": None}).has_expired(now)


@pytest.mark.parametrize(
    ("field", "value"), [("format", 2), ("nbytes", -1), ("pending", ["a"]), ("colour", "red")]
)
def test_what_is_no_record_is_named(field: str, value: object) -> None:
    content = json.dumps({**json.loads(dump_record(RECORD)), field: value}).encode()
    with pytest.raises(StateCorrupt, match=f"state p0-x can't be read: {field}"):
        parse_record(content, "p0-x")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_what_is_no_json_either(content: bytes) -> None:
    with pytest.raises(StateCorrupt):
        parse_record(content, "p0-x")

from __future__ import annotations

import io
import logging

import pytest

from rwkv_server.errors import CredentialsMissing
from rwkv_server.fetch import redact

TOKEN = "s3cret/with+odd signs"


@pytest.fixture
def redactor():
    return redact.Redactor([TOKEN, None, ""])


def test_text_and_urls(redactor):
    shown = redactor.text(f"Bearer {TOKEN} and ?t=s3cret%2Fwith%2Bodd%20signs.")
    assert shown == "Bearer *** and ?t=***."


def test_nothing_to_hide():
    assert redact.Redactor([None]).text("a b") == "a b"


def test_errors_keep_their_kind_and_code(redactor):
    error = redactor.error(CredentialsMissing(f"no {TOKEN}", found=f"a {TOKEN}", wanted="other"))
    assert (error.message, error.found, error.wanted) == ("no ***", "a ***", "other")
    assert (error.reason, error.exit_code) == ("CredentialsMissing", 77)


def test_every_log_line_and_trace(redactor, monkeypatch):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    redact.guard_logs(redactor)
    try:
        raise ValueError(f"trace with {TOKEN}")
    except ValueError:
        logging.getLogger("any.library").exception("headers %s", {"authorization": TOKEN})
    assert "s3cret" not in stream.getvalue()
    assert stream.getvalue().startswith("ERROR headers {'authorization': '***'}")
    assert "ValueError: trace with ***" in stream.getvalue()

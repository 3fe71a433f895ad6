"""Keep the hub's token out of every line that leaves this process."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from urllib.parse import quote

from rwkv_server.errors import Fact, ServerError

HIDDEN = "***"


class Redactor:
    """Replaces secrets in text."""

    def __init__(self, secrets: Iterable[str | None]) -> None:
        """Remember the secrets, also as they look in a URL; the longest first."""
        forms = {form for secret in secrets if secret for form in (secret, quote(secret, safe=""))}
        self._forms = sorted(forms, key=len, reverse=True)

    def text(self, text: str) -> str:
        """`text` without secrets."""
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return text

    def error(self, error: ServerError) -> ServerError:
        """The same error without secrets."""
        found, wanted = self._fact(error.found), self._fact(error.wanted)
        return type(error)(self.text(error.message), found=found, wanted=wanted)

    def _fact(self, fact: Fact) -> Fact:
        return self.text(fact) if isinstance(fact, str) else fact


class RedactingFormatter(logging.Formatter):
    """Formats as another formatter does, traces included, and takes the secrets out."""

    def __init__(self, inner: logging.Formatter, redactor: Redactor) -> None:
        """Wrap `inner`."""
        super().__init__()
        self._inner, self._redactor = inner, redactor

    def format(self, record: logging.LogRecord) -> str:
        """One record as text."""
        return self._redactor.text(self._inner.format(record))


def guard_logs(redactor: Redactor) -> None:
    """Make every handler of the root logger redact; libraries log through it, too."""
    for handler in logging.getLogger().handlers:
        inner = handler.formatter or logging.Formatter()
        handler.setFormatter(RedactingFormatter(inner, redactor))

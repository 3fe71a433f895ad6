"""The operator's exceptions, so that a caller can tell a bad object from a bad day.

    OperatorError
    ├── InvalidSpec     the user's object says something that can't be served
    ├── NotYet          nothing is wrong; a pass can go on when something else has happened
    ├── SettingsError   the operator was started with a setting that can't be used
    └── ClusterError    the API server refused or couldn't be reached
        └── Conflict    another field manager owns a field that we set

Errors of libraries are translated into these where they enter (`cluster/`).
"""

from __future__ import annotations


class OperatorError(Exception):
    """Base of everything that the operator raises on purpose."""


class InvalidSpec(OperatorError):
    """A field of a custom resource has a value that can't be used.

    Attributes:
        field: path of the field, such as `spec.model.source`.
        found: what the object says, as text.
        wanted: what would be accepted, as text.
    """

    def __init__(self, field: str, found: object, wanted: str) -> None:
        """Keep the three facts and make one line of them."""
        self.field = field
        self.found = "nothing" if found is None else str(found)
        self.wanted = wanted
        super().__init__(f"{field}: found {self.found}, wanted {wanted}")


class NotYet(OperatorError):
    """A pass has to wait for something that happens without it.

    Attributes:
        seconds: when to look again.
    """

    def __init__(self, message: str, seconds: float) -> None:
        """Keep the time beside the text."""
        self.seconds = seconds
        super().__init__(message)


class SettingsError(OperatorError):
    """The operator itself was started with a setting that can't be used."""

    def __init__(self, variable: str, found: object, wanted: str) -> None:
        """Name the environment variable, what it holds and what would be accepted."""
        super().__init__(f"{variable}: found {found or 'nothing'}, wanted {wanted}")


class ClusterError(OperatorError):
    """The API server refused a request or couldn't be reached.

    Attributes:
        status: HTTP status, 0 when there was no answer.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        """Keep the HTTP status beside the text."""
        self.status = status
        super().__init__(message)


class Conflict(ClusterError):
    """Another field manager owns a field that the operator sets."""

    def __init__(self, message: str) -> None:
        """A conflict is always the API server's 409."""
        super().__init__(message, status=409)

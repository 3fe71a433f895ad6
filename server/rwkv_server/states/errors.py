"""What can be wrong with a saved state, as the state API names it.

Each error has OpenAI's `code` and an HTTP status. Raised by the store and by turns, turned into an
answer by `web`. Nothing here may import another module of this package.
"""

from __future__ import annotations

from typing import ClassVar


class StateError(Exception):
    """Base of all refusals of the state API.

    Attributes:
        message: one line: which object, what was found, what to do.
        param: the request's field that is wrong, if one is.
        retry_after_s: when trying again may help.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "state_error"

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: int | None = None
    ) -> None:
        """Keep the message and what goes beside it."""
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class StateInvalidRef(StateError):
    """A ref, name or id that the grammar doesn't allow."""

    status, code = 400, "state_invalid_ref"


class StateUnsupportedOption(StateError):
    """An option that can't be exact together with a state."""

    status, code = 400, "state_unsupported_option"


class StateNotOffered(StateError):
    """Something that this way of serving can't do with a state."""

    status, code = 501, "state_unsupported_option"


class StateNeedsSharedStore(StateError):
    """A name of the client's choice, in a store that only one pod reads."""

    status, code = 400, "state_needs_shared_store"


class StateForbidden(StateError):
    """Listing and exporting without API keys."""

    status, code = 403, "state_forbidden"


class StateNotFound(StateError):
    """No such state, or another tenant's."""

    status, code = 404, "state_not_found"


class StateExists(StateError):
    """The name is taken."""

    status, code = 409, "state_exists"


class StateInUse(StateError):
    """A request is reading it."""

    status, code = 409, "state_in_use"


class SessionConflict(StateError):
    """Another turn of this session is under way, or was faster."""

    status, code = 409, "session_conflict"


class StateExpired(StateError):
    """Its time is over; 404 a week after it was removed."""

    status, code = 410, "state_expired"


class StateLost(StateError):
    """It was in a store that doesn't exist any more."""

    status, code = 410, "state_lost"


class StateTooLarge(StateError):
    """An upload with more bytes than a state has."""

    status, code = 413, "state_too_large"


class StateIncompatible(StateError):
    """A snapshot of another model, layout or dtype."""

    status, code = 422, "state_incompatible"


class StateCorrupt(StateError):
    """Bytes that aren't what was written, or that no model has made."""

    status, code = 422, "state_corrupt"


class StateQuota(StateError):
    """The tenant holds as many bytes as it may."""

    status, code = 429, "state_quota"


class StateBusy(StateError):
    """All memory for snapshots is in use by running requests."""

    status, code = 503, "state_busy"


class StateStoreUnavailable(StateError):
    """The store, or the pod that holds the state, doesn't answer or refuses."""

    status, code = 503, "state_store_unavailable"


class StateStoreFull(StateError):
    """No room is left on the store."""

    status, code = 507, "state_store_full"

"""When the API server was last heard of: what the liveness probe asks."""

from __future__ import annotations

from collections.abc import Callable


class Contact:
    """Time of the last watch event or successful list. Read and written from several threads.

    Attributes:
        listed: all deployments were listed once, so every one of them is known.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Count from now, by a monotonic clock."""
        self._clock = clock
        self._last = clock()
        self.listed = False

    def heard(self) -> None:
        """The API server has told or answered something."""
        self._last = self._clock()

    def age(self) -> float:
        """Seconds since then."""
        return self._clock() - self._last

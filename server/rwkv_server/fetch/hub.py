"""What `fetch` needs of a hub: list a revision's files, and copy one of them from an offset on.

The two implementations are the only importers of the vendors' libraries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class RemoteFile:
    """One file of a revision.

    Attributes:
        name: at the repository's root.
        digest: `sha256:<hex>` of the content, or `git:<hex>` for git's own object id, or "" where
            the hub promises none.
    """

    name: str
    size: int
    digest: str


@dataclass(frozen=True)
class Snapshot:
    """A revision at one moment: the commit it names, and its files."""

    commit: str
    files: tuple[RemoteFile, ...]


class Sink(Protocol):
    """Where bytes go: an open file that knows where it stands."""

    @property
    def offset(self) -> int:
        """Bytes that are there already."""
        ...

    def write(self, data: bytes) -> int:
        """Append."""
        ...

    def seek(self, position: int) -> int:
        """Go to `position`, for a truncate."""
        ...

    def tell(self) -> int:
        """The position."""
        ...

    def truncate(self) -> int:
        """Drop what lies behind the position."""
        ...


class HubUnavailable(Exception):
    """The hub didn't answer, or not as it should; trying again may help. One line of text."""


class Hub(Protocol):
    """One repository at one revision of a hub."""

    @property
    def label(self) -> str:
        """How errors and logs name it: hub, repository, revision."""
        ...

    def list_files(self) -> Snapshot:
        """The revision's files.

        Raises:
            HubUnavailable: try again.
            ModelNotFound, CredentialsMissing: trying again won't help.
        """
        ...

    def copy(self, file: RemoteFile, commit: str, sink: Sink) -> None:
        """Append the rest of `file` to `sink`; errors as `list_files`."""
        ...

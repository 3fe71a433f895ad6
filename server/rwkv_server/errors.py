"""The server's exceptions, each with the exit code and the reason that a pod ends with.

    ServerError
    ├── AcceptanceFailed    1  the acceptance run, or its evidence, isn't what it has to be
    ├── ConfigInvalid      64  engine.yaml says something this server can't do
    ├── ModelError
    │   ├── ModelInvalid   65  the files are there, but aren't an RWKV-7 we can serve
    │   └── ModelNotFound  66
    ├── EngineFailed       70  the vLLM child died or never came up
    ├── FetchError
    │   ├── DiskFull            73  the model doesn't fit on the volume
    │   ├── DownloadFailed      75  the hub or the way to it; trying again may help
    │   └── CredentialsMissing  77  the hub wants a token, or another one
    ├── StoreError         74  reported while serving: generation works without a store
    │   ├── StoreUnreachable
    │   └── StoreDenied
    └── RuntimeMismatch    78  the container holds other packages than the stack promises

The reason is what the operator reads in the termination message; it is part of the contract.
Nothing here may import another module of this package.
"""

from __future__ import annotations

from typing import ClassVar, Union

Fact = Union[str, int, "dict[str, str]", "list[int]", None]


class ServerError(Exception):
    """Base of everything that ends the server on purpose.

    Attributes:
        message: one line: what, which object, what to do.
        found: what is there, if the error compares two facts.
        wanted: what would be accepted.
    """

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, found: Fact = None, wanted: Fact = None) -> None:
        """Keep the message and both facts."""
        super().__init__(message)
        self.message = message
        self.found = found
        self.wanted = wanted

    @property
    def reason(self) -> str:
        """The class name: the operator's condition reason."""
        return type(self).__name__


class AcceptanceFailed(ServerError):
    """An acceptance check failed, or evidence was changed."""

    exit_code = 1


class ConfigInvalid(ServerError):
    """A field of engine.yaml can't be used."""

    exit_code = 64


class ModelError(ServerError):
    """Base of what can be wrong with a model's files."""

    exit_code = 65


class ModelInvalid(ModelError):
    """The model's files can't be served as an RWKV-7."""


class ModelNotFound(ModelError):
    """There is no model at the configured path."""

    exit_code = 66


class EngineFailed(ServerError):
    """The engine process died, or the parent couldn't run it."""


class FetchError(ServerError):
    """Base of what can keep a model from being downloaded, its own files aside."""

    exit_code = 75


class DiskFull(FetchError):
    """The volume has too little room for the model."""

    exit_code = 73


class DownloadFailed(FetchError):
    """The hub or the network failed more often than we try, or gave other bytes than promised."""


class CredentialsMissing(FetchError):
    """The hub refuses the repository to this token, or to nobody in particular."""

    exit_code = 77


class StoreError(ServerError):
    """Base of what the probe of the state store can meet."""

    exit_code = 74


class StoreUnreachable(StoreError):
    """The directory or bucket is missing, full, broken or doesn't answer."""


class StoreDenied(StoreError):
    """The store is there, but this pod may not write to it."""


class RuntimeMismatch(ServerError):
    """Installed packages differ from the hardware stack's."""

    exit_code = 78

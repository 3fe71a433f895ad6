"""The errors of both hubs, in one wording."""

from __future__ import annotations

import re

from rwkv_server.errors import CredentialsMissing, ModelNotFound

# Links into a hub's store carry a signature that is as good as a password for a while.
_QUERY = re.compile(r"\?[^\s'\"]+")


def cause(error: Exception) -> str:
    """A library's error in one short line: the system's own words where it wraps some.

    Addresses lose their queries.
    """
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.errno is not None and inner.strerror:
            return f"{type(error).__name__}: {inner.strerror}"
        inner = inner.__cause__ or inner.__context__
    text = _QUERY.sub("?…", " ".join(str(error).split()))[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def no_repository(label: str) -> ModelNotFound:
    """The hub doesn't know the repository."""
    return ModelNotFound(
        f"{label}: there is no such repository, or it is private: check repo in spec.model.source, "
        "or set its tokenSecretRef",
        found="404",
    )


def no_revision(label: str, revision: str) -> ModelNotFound:
    """The repository has no such revision."""
    return ModelNotFound(
        f"{label}: the repository has no revision {revision}: "
        "name a branch, a tag or a commit that it has",
        found=revision,
        wanted="a branch, a tag or a commit",
    )


def no_file(label: str, name: str) -> ModelNotFound:
    """A listed file can't be had."""
    return ModelNotFound(f"{label}: the file {name} is not there any more", found=name)


def denied(label: str, status: int, has_token: bool) -> CredentialsMissing:
    """The hub refuses."""
    what = "this token is not valid there" if has_token else "no token was given"
    return CredentialsMissing(
        f"{label}: the hub answers {status}: the repository is private or doesn't exist, and "
        f"{what}. Check repo, and set tokenSecretRef to a Secret with a token that may read it.",
        found=f"{status}, {'with' if has_token else 'without'} a token",
        wanted="a token that may read the repository",
    )


def gated(label: str, has_token: bool) -> CredentialsMissing:
    """The repository's owner wants a form filled in first."""
    todo = (
        "accept its terms on the hub with the account that the token belongs to"
        if has_token
        else "accept its terms on the hub, then set tokenSecretRef to a token of that account"
    )
    return CredentialsMissing(
        f"{label}: the repository is gated: {todo}",
        found=f"403, {'with' if has_token else 'without'} a token",
        wanted="a token of an account that has accepted the terms",
    )

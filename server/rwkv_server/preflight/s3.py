"""A bucket for states: how it is opened, and its write-read-delete probe.

The only place that reads S3 credentials. Nothing of them is ever in a message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore import exceptions
from obstore.store import S3Store

from rwkv_server.errors import StoreDenied, StoreUnreachable
from rwkv_server.settings import S3

if TYPE_CHECKING:
    from obstore.store import S3Credential

ACCESS_KEY_ID = "accessKeyId"
SECRET_ACCESS_KEY = "secretAccessKey"
# Retries are the callers': here a request has one try and a bound.
TIMEOUT = timedelta(seconds=8)
CREDENTIALS_KEPT = timedelta(seconds=60)

DENIED = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)


class MountedCredentials:
    """The credentials as they are mounted now: a changed Secret needs no restart."""

    def __init__(self, s3: S3, kept: timedelta) -> None:
        """Remember where they are, and for how long one reading counts."""
        self._s3 = s3
        self._kept = kept
        self.refresh_threshold = timedelta(0)

    def __call__(self) -> S3Credential:
        """What the files hold.

        Raises:
            StoreDenied: one is missing or empty.
        """
        return {
            "access_key_id": _credential(self._s3, ACCESS_KEY_ID),
            "secret_access_key": _credential(self._s3, SECRET_ACCESS_KEY),
            "token": None,
            "expires_at": datetime.now(timezone.utc) + self._kept,
        }


def open_bucket(s3: S3, kept: timedelta = CREDENTIALS_KEPT) -> S3Store:
    """A client of the bucket, below its prefix; sends nothing yet.

    Args:
        s3: which bucket.
        kept: how long credentials are used before their files are read again.

    Raises:
        StoreDenied: a file with credentials is missing or empty.
    """
    credentials = MountedCredentials(s3, kept)
    credentials()
    return S3Store(
        s3.bucket,
        prefix=s3.prefix or None,
        endpoint=s3.endpoint,
        region=s3.region,
        credential_provider=credentials,
        disable_bulk_delete=True,  # not every server has it, and keys go one by one
        client_options={
            "allow_http": (s3.endpoint or "").startswith("http://"),
            "timeout": TIMEOUT,
            "connect_timeout": TIMEOUT,
        },
        retry_config={"max_retries": 0},
    )


def probe_bucket(s3: S3, owner: str, content: bytes) -> None:
    """Write, read back, list and delete one object of this pod's.

    Raises:
        StoreDenied: the server refuses these credentials, or one of the three.
        StoreUnreachable: anything else, with the server's or the network's own words.
    """
    key = f".rwkv-probe.{owner}"
    with translated(s3):
        store = open_bucket(s3)
        obstore.put(store, key, content)
        once = _creates_once(store, key)
        found = bytes(obstore.get(store, key).bytes())
        next(iter(obstore.list(store, chunk_size=1)), None)
        obstore.delete(store, key)
    if not once:
        raise StoreUnreachable(
            f"{place(s3)} writes over an object that was to be created only (If-None-Match): "
            "states would get lost there. Use a server that has conditional writes."
        )
    if found != content:
        raise StoreUnreachable(f"{place(s3)} gave back other bytes than were written to it")


def _creates_once(store: S3Store, key: str) -> bool:
    try:
        obstore.put(store, key, b"a second time", mode="create", use_multipart=False)
    except exceptions.AlreadyExistsError:
        return True
    return False


def place(s3: S3) -> str:
    """The bucket and where it is, for messages."""
    return f"bucket {s3.bucket} at {s3.endpoint or f'Amazon S3, {s3.region}'}"


@contextlib.contextmanager
def translated(s3: S3) -> Iterator[None]:
    """Errors of the client as ours, in one line."""
    try:
        yield
    except DENIED as error:
        raise StoreDenied(
            f"{place(s3)} refuses the credentials: {_words(error)}. Check the Secret's entries "
            f"{ACCESS_KEY_ID} and {SECRET_ACCESS_KEY}, and what they may do there."
        ) from None
    except FileNotFoundError:
        raise StoreUnreachable(
            f"{place(s3)}: no such bucket, or what was just written isn't there"
        ) from None
    except exceptions.BaseError as error:
        raise StoreUnreachable(f"{place(s3)}: {_words(error)}") from None


def _credential(s3: S3, name: str) -> str:
    path = Path(s3.credentials_path) / name
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise StoreDenied(f"{path} can't be read: {error.strerror}") from None
    if not text:
        raise StoreDenied(f"{path} is empty: wanted the entry {name} of the Secret")
    return text


def _words(error: Exception) -> str:
    """The first line: what follows is the client's own view of its internals."""
    return str(error).split("\n", 1)[0][:300]

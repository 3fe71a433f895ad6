"""Blobs on S3 and in memory, through obstore. Its errors end here.

Keys lie under a prefix. Every put is one request: an interrupted upload in parts would keep bytes
that no listing shows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import obstore
from obstore import exceptions
from obstore.store import ObjectStore

from rwkv_server.states.errors import StateError, StateStoreFull, StateStoreUnavailable
from rwkv_server.states.held import Content
from rwkv_server.states.store.blobs import (
    Blob,
    BlobExists,
    BlobMissing,
    Describe,
    commit_in_turn,
)

# As S3 servers call it: AWS has no end, MinIO, Ceph and versitygw have.
_FULL = re.compile(
    r"<Code>(XMinioStorageFull|QuotaExceeded|InsufficientStorage)</Code>|status code: 507\b"
)
# Listings have no type of their own for a refusal.
_DENIED = {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}
_NO_BUCKET = "NoSuchBucket"
_RETRY_AFTER_S = 5


class ObjectBlobs:
    """A bucket, or a memory."""

    def __init__(self, bucket: ObjectStore, prefix: str, name: str) -> None:
        """Remember where blobs go.

        Args:
            bucket: one of obstore's stores.
            prefix: folder of all keys, without slashes around it; "" for the root.
            name: how errors call it, without secrets.
        """
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._name = name

    async def commit(self, folder: str, data: Content, describe: Describe) -> None:
        """See `Blobs`."""
        await commit_in_turn(self, data, describe)

    async def create(self, key: str, content: bytes) -> None:
        """See `Blobs`."""
        try:
            await obstore.put_async(
                self._bucket, self._prefix + key, content, mode="create", use_multipart=False
            )
        except exceptions.AlreadyExistsError:
            raise BlobExists(key) from None
        except (exceptions.BaseError, OSError) as error:
            raise self._as_state_error(error) from error

    async def get(self, key: str) -> bytes:
        """See `Blobs`."""
        try:
            found = await obstore.get_async(self._bucket, self._prefix + key)
            return bytes(await found.bytes_async())
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            if _NO_BUCKET in str(error):
                raise self._as_state_error(error) from error
            raise BlobMissing(key) from None
        except (exceptions.BaseError, OSError) as error:
            raise self._as_state_error(error) from error

    async def list(self, prefix: str) -> Sequence[Blob]:
        """See `Blobs`."""
        start = len(self._prefix)
        try:
            stream = obstore.list(self._bucket, f"{self._prefix}{prefix}" or None)
            found = await stream.collect_async()
        except (exceptions.BaseError, OSError) as error:
            raise self._as_state_error(error) from error
        blobs = [Blob(m["path"][start:], m["size"], m["last_modified"].timestamp()) for m in found]
        return sorted(blobs, key=lambda blob: blob.key)

    async def delete(self, key: str) -> None:
        """See `Blobs`."""
        try:
            await obstore.delete_async(self._bucket, self._prefix + key)
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            if _NO_BUCKET in str(error):
                raise self._as_state_error(error) from error
        except (exceptions.BaseError, OSError) as error:
            raise self._as_state_error(error) from error

    async def clean(self, before: float) -> int:
        """See `Blobs`; there is never anything."""
        return 0

    def _as_state_error(self, error: Exception) -> StateError:
        text = str(error)
        code = re.search(r"<Code>(\w{1,60})</Code>", text)
        words = code[1] if code else type(error).__name__
        if _FULL.search(text):
            return StateStoreFull(f"the state store {self._name} is full: {words}. Delete states.")
        denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        if words in _DENIED or isinstance(error, (*denied, PermissionError)):
            return StateStoreUnavailable(
                f"the state store {self._name} refuses: {words}. Check its credentials, and that "
                "they may get, put, list and delete."
            )
        if words == _NO_BUCKET or isinstance(error, exceptions.NotFoundError):
            return StateStoreUnavailable(
                f"the state store {self._name} is not there: {words}. Create the bucket."
            )
        return StateStoreUnavailable(
            f"the state store {self._name} failed: {words}", retry_after_s=_RETRY_AFTER_S
        )

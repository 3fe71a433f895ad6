"""The store's behaviour on a real S3 server; the same suite as on volumes and in memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from blobs_behaviour import BlobsBehaviour
from heads_behaviour import HeadsBehaviour
from removal_behaviour import RemovalBehaviour
from state_stores import Clock, make_record, store_on
from states_behaviour import StatesBehaviour

from rwkv_server.preflight import s3
from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.objects import ObjectBlobs

_numbers = itertools.count()


@pytest.fixture
def blobs(server: Any) -> Blobs:
    return server.blobs(prefix=f"prefix/{next(_numbers)}")


@pytest.fixture
def clock() -> Clock:
    return Clock()


class TestBlobs(BlobsBehaviour):
    pass


class TestStates(StatesBehaviour):
    pass


class TestHeads(HeadsBehaviour):
    pass


class TestRemoval(RemovalBehaviour):
    pass


async def test_more_keys_than_one_listing_has(blobs: Blobs) -> None:
    for number in range(1005):
        await blobs.create(f"many/{number:04}", b"")
    assert len(await blobs.list("many")) == 1005


async def test_wrong_credentials(server: Any, tmp_path: Path) -> None:
    wrong = replace(server.gateway, secret_key=secrets.token_hex())
    blobs = server.with_keys(wrong, tmp_path / "keys").blobs()
    with pytest.raises(StateStoreUnavailable, match="Check its credentials") as refused:
        await store_on(blobs, Clock()).put(make_record("r"), b"1")
    assert wrong.secret_key not in str(refused.value)


async def test_a_changed_secret_counts_without_a_restart(server: Any, tmp_path: Path) -> None:
    wrong = replace(server.gateway, secret_key=secrets.token_hex())
    settings = server.with_keys(wrong, tmp_path).settings()
    blobs = ObjectBlobs(s3.open_bucket(settings, timedelta(0)), "ns/rotated", "bucket")
    with pytest.raises(StateStoreUnavailable):
        await blobs.create("k", b"1")
    server.gateway.write_credentials(tmp_path)
    for _ in range(100):  # the client doesn't read more often than ten times a second
        with contextlib.suppress(StateStoreUnavailable):
            await blobs.create("k", b"1")
            break
        await asyncio.sleep(0.02)
    assert await blobs.get("k") == b"1"
    for name in (s3.ACCESS_KEY_ID, s3.SECRET_ACCESS_KEY):
        (tmp_path / name).unlink()
    await asyncio.sleep(0.15)
    with pytest.raises(StateStoreUnavailable):
        await blobs.get("k")


async def test_a_bucket_that_isnt_there(server: Any) -> None:
    blobs = server.blobs(bucket="nothing")
    with pytest.raises(StateStoreUnavailable, match="Create the bucket"):
        await store_on(blobs, Clock()).put(make_record("r"), b"1")
    for call in (blobs.get("k"), blobs.create("k", b""), blobs.list(""), blobs.delete("k")):
        with pytest.raises(StateStoreUnavailable):
            await call


async def test_a_server_that_is_down(server: Any) -> None:
    with pytest.raises(StateStoreUnavailable) as refused:
        await server.blobs(endpoint="http://127.0.0.1:9").get("k")
    assert refused.value.retry_after_s is not None

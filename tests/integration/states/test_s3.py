"""The store's behaviour on a real S3 server; the same suite as on volumes and in memory."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import s3_program
from s3_program import S3Server
from state_stores import Clock, make_record, store_on
from store_behaviour import BlobsBehaviour, HeadsBehaviour, StatesBehaviour

from rwkv_server.preflight import s3
from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.objects import ObjectBlobs

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_program.running(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def blobs(server: S3Server) -> Blobs:
    return blobs_of(server, prefix=f"prefix/{next(_numbers)}")


def blobs_of(server: S3Server, prefix: str = "", bucket: str = s3_program.BUCKET) -> Blobs:
    settings = server.settings(prefix, bucket)
    return ObjectBlobs(s3.open_bucket(settings), "ns/chat", s3.place(settings))


@pytest.fixture
def clock() -> Clock:
    return Clock()


class TestBlobs(BlobsBehaviour):
    pass


class TestStates(StatesBehaviour):
    pass


class TestHeads(HeadsBehaviour):
    pass


async def test_more_keys_than_one_listing_has(blobs: Blobs) -> None:
    for number in range(1005):
        await blobs.create(f"many/{number:04}", b"")
    assert len(await blobs.list("many")) == 1005


async def test_wrong_credentials(server: S3Server, tmp_path: Path) -> None:
    (tmp_path / "accessKeyId").write_text(s3_program.KEY_ID)
    (tmp_path / "secretAccessKey").write_text(secret := secrets.token_hex())
    store = store_on(blobs_of(replace(server, credentials=tmp_path)), Clock())
    with pytest.raises(StateStoreUnavailable, match="Check its credentials") as refused:
        await store.put(make_record("r"), b"1")
    assert secret not in str(refused.value) and s3_program.KEY_ID not in str(refused.value)


async def test_a_bucket_that_isnt_there(server: S3Server) -> None:
    blobs = blobs_of(server, bucket="nothing")
    with pytest.raises(StateStoreUnavailable, match="Create the bucket"):
        await store_on(blobs, Clock()).put(make_record("r"), b"1")
    for call in (blobs.get("k"), blobs.create("k", b""), blobs.list(""), blobs.delete("k")):
        with pytest.raises(StateStoreUnavailable):
            await call


async def test_a_server_that_is_down(server: S3Server) -> None:
    blobs = blobs_of(replace(server, endpoint="http://127.0.0.1:9"))
    with pytest.raises(StateStoreUnavailable) as refused:
        await blobs.get("k")
    assert refused.value.retry_after_s is not None

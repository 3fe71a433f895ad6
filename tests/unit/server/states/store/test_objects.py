from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import canned_s3
import pytest
from canned_s3 import CannedServer
from store_faults import FaultyBlobs, PaperBlobs

from rwkv_server.errors import StoreUnreachable
from rwkv_server.preflight import s3
from rwkv_server.settings import S3
from rwkv_server.states.errors import StateStoreFull, StateStoreUnavailable
from rwkv_server.states.store.blobs import BlobExists, Blobs
from rwkv_server.states.store.objects import ObjectBlobs
from rwkv_server.states.store.retried import RetriedBlobs
from rwkv_server.states.store.timed import TimedBlobs


@pytest.fixture
def server() -> Iterator[CannedServer]:
    with canned_s3.running() as server:
        yield server


@pytest.fixture
def settings(server: CannedServer, tmp_path: Path) -> S3:
    (tmp_path / "accessKeyId").write_text("KEYID")
    (tmp_path / "secretAccessKey").write_text("SECRET")
    return S3.model_validate(
        {
            "bucket": "states",
            "prefix": "",
            "endpoint": server.endpoint,
            "region": "here",
            "credentialsPath": str(tmp_path),
        }
    )


@pytest.fixture
def blobs(settings: S3) -> Blobs:
    return ObjectBlobs(s3.open_bucket(settings), "ns/chat", s3.place(settings))


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (507, "XMinioStorageFull", StateStoreFull, "full"),
        (507, "Other", StateStoreFull, "full"),
        (403, "QuotaExceeded", StateStoreFull, "full"),
        (403, "AccessDenied", StateStoreUnavailable, "Check its credentials"),
        (403, "InvalidAccessKeyId", StateStoreUnavailable, "Check its credentials"),
        (404, "NoSuchBucket", StateStoreUnavailable, "Create the bucket"),
        (500, "InternalError", StateStoreUnavailable, "failed"),
        (503, "SlowDown", StateStoreUnavailable, "failed"),
        (503, "Took507ms", StateStoreUnavailable, "failed"),
    ],
)
async def test_answers_of_a_server(server, blobs, status, code, kind, words):
    server.answer = lambda method, path: (status, canned_s3.error(code))
    for call in (blobs.create("k", b"1"), blobs.get("k"), blobs.list("")):
        with pytest.raises(kind, match=words) as refused:
            await call
        assert "KEYID" not in str(refused.value) and "SECRET" not in str(refused.value)
        again = refused.value.retry_after_s is not None
        assert again == (words == "failed")


async def test_a_server_that_hangs(server, blobs):
    hang = threading.Event()
    server.answer = lambda method, path: (500, b"") if hang.wait(20) else None
    with pytest.raises(StateStoreUnavailable, match=r"a read within 0.1 s"):
        await TimedBlobs(blobs, 0.1).get("k")
    hang.set()


async def test_a_failure_of_a_moment_is_nobodys(server, blobs):
    failures = iter([(503, canned_s3.error("SlowDown")), (500, b"")])
    server.answer = lambda method, path: next(failures, None)
    retried = RetriedBlobs(blobs, (0.0, 0.0))
    await retried.create("k", b"1")
    assert await retried.get("k") == b"1"
    assert [method for method, _ in server.requests] == ["PUT", "PUT", "PUT", "GET"]


async def test_a_denial_is_told_at_once(server, blobs):
    server.answer = lambda method, path: (403, canned_s3.error("AccessDenied"))
    with pytest.raises(StateStoreUnavailable):
        await RetriedBlobs(blobs, (0.0, 0.0)).get("k")
    assert len(server.requests) == 1


async def test_a_write_whose_answer_got_lost_is_ours():
    backend = PaperBlobs()
    retried = RetriedBlobs(FaultyBlobs(backend, 0, "answer lost"), (0.0,))
    await retried.create("k", b"ours")
    assert await backend.get("k") == b"ours"


async def test_a_write_that_came_second_is_not_ours():
    backend = PaperBlobs()
    await backend.create("k", b"theirs")
    retried = RetriedBlobs(FaultyBlobs(backend, 0, "refused"), (0.0,))
    with pytest.raises(BlobExists):
        await retried.create("k", b"ours")
    # Also when both say the same: claims and ends have their writer's name in them.
    with pytest.raises(BlobExists):
        await RetriedBlobs(backend, (0.0,)).create("k", b"theirs")


def test_the_probe_refuses_a_server_without_conditional_writes(settings):
    with pytest.raises(StoreUnreachable, match="If-None-Match"):
        s3.probe_bucket(settings, "chat-engine-0", b"probe")

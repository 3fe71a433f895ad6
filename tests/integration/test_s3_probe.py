"""The write-read-delete probe on a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import s3_gateway

from rwkv_server.errors import StoreDenied, StoreUnreachable
from rwkv_server.preflight import s3
from rwkv_server.settings import S3

CONTENT = b"probe"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3_gateway.Gateway]:
    """A server with one bucket."""
    with s3_gateway.running(tmp_path_factory.mktemp("s3")) as server:
        yield server


def bucket(gateway: s3_gateway.Gateway, folder: Path, name: str = s3_gateway.BUCKET) -> S3:
    return S3(
        bucket=name,
        prefix="a/b",
        endpoint=gateway.endpoint,
        region="us-east-1",
        credentialsPath=str(gateway.write_credentials(folder)),
    )


def test_a_good_bucket_is_left_empty(gateway: s3_gateway.Gateway, tmp_path: Path) -> None:
    settings = bucket(gateway, tmp_path)
    s3.probe_bucket(settings, "chat-engine-0", CONTENT)
    listed = s3.obstore.list(s3.open_bucket(settings)).collect()
    assert list(listed) == []


def test_a_wrong_key_is_denied(gateway: s3_gateway.Gateway, tmp_path: Path) -> None:
    settings = bucket(gateway, tmp_path)
    (tmp_path / s3.SECRET_ACCESS_KEY).write_text("wrong")
    with pytest.raises(StoreDenied, match="refuses the credentials"):
        s3.probe_bucket(settings, "chat-engine-0", CONTENT)


def test_a_bucket_that_is_missing_is_named(gateway: s3_gateway.Gateway, tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable, match=r"nowhere at http.*no such bucket"):
        s3.probe_bucket(bucket(gateway, tmp_path, "nowhere"), "chat-engine-0", CONTENT)

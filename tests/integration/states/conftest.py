from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import s3_gateway

from rwkv_server.preflight import s3
from rwkv_server.settings import S3
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.objects import ObjectBlobs


@dataclass(frozen=True)
class Server:
    """A running S3 server, and a folder with its credentials as they are mounted."""

    gateway: s3_gateway.Gateway
    credentials: Path

    def settings(self, prefix: str = "", bucket: str = s3_gateway.BUCKET, endpoint: str = "") -> S3:
        return S3.model_validate(
            {
                "bucket": bucket,
                "prefix": prefix,
                "endpoint": endpoint or self.gateway.endpoint,
                "region": "us-east-1",
                "credentialsPath": str(self.credentials),
            }
        )

    def with_keys(self, gateway: s3_gateway.Gateway, folder: Path) -> Server:
        """The same server, seen by one with another's credentials."""
        return Server(self.gateway, gateway.write_credentials(folder))

    def blobs(self, prefix: str = "", **others: str) -> Blobs:
        settings = self.settings(prefix, **others)
        return ObjectBlobs(s3.open_bucket(settings), "ns/chat", s3.place(settings))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with s3_gateway.running(tmp_path_factory.mktemp("s3")) as gateway:
        yield Server(gateway, gateway.write_credentials(tmp_path_factory.mktemp("keys")))

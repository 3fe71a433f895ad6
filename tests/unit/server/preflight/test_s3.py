from __future__ import annotations

import socket

import engine_config
import pytest

from rwkv_server.errors import StoreDenied, StoreUnreachable
from rwkv_server.preflight import s3, store
from rwkv_server.settings import S3, State


def bucket(tmp_path, **fields):
    (tmp_path / "accessKeyId").write_text("key\n")
    (tmp_path / "secretAccessKey").write_text("very-secret\n")
    own = {"bucket": "states", "prefix": "", "endpoint": None, "region": "eu-1"}
    return S3(**{**own, "credentialsPath": str(tmp_path), **fields})


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_a_server_that_does_not_answer_is_unreachable_and_named(tmp_path):
    endpoint = f"http://127.0.0.1:{closed_port()}"
    own = engine_config.changed(state__store="s3", state__path=None)["state"]
    state = State(**own | {"s3": bucket(tmp_path, endpoint=endpoint).model_dump(by_alias=True)})
    report = store.report_store(state, "chat-engine-0")
    assert (report.kind, report.ok, report.reason) == ("s3", False, "StoreUnreachable")
    assert f"bucket states at {endpoint}" in report.message
    assert "\n" not in report.message and "very-secret" not in report.message


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [("accessKeyId", None, "can't be read"), ("secretAccessKey", " \n", "is empty")],
)
def test_credentials_that_are_missing_are_named(tmp_path, name, content, told):
    settings = bucket(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(StoreDenied, match=f"{name} {told}"):
        s3.open_bucket(settings)


def test_amazon_is_named_by_its_region(tmp_path):
    assert s3.place(bucket(tmp_path)) == "bucket states at Amazon S3, eu-1"


@pytest.mark.parametrize("error", [s3.exceptions.PermissionDeniedError, s3.DENIED[1]])
def test_a_server_that_refuses_is_told_apart(tmp_path, error):
    with pytest.raises(StoreDenied, match="refuses the credentials: 403 no"):
        with s3.translated(bucket(tmp_path)):
            raise error("403 no\nDebug source: secrets and more")


def test_other_errors_are_told_in_one_line(tmp_path):
    with pytest.raises(StoreUnreachable, match=r"eu-1: 500 x$"):
        with s3.translated(bucket(tmp_path)):
            raise s3.exceptions.GenericError("500 x\nDebug source: …")

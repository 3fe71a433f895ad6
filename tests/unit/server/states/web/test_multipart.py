"""Forms: what a part holds, and what is no form."""

from __future__ import annotations

import os

import httpx
import pytest

from rwkv_server.states.web import multipart
from rwkv_server.web.errors import Refusal


def encoded(**parts):
    request = httpx.Request("POST", "http://x", **parts)
    return request.headers["content-type"], request.read()


def test_bytes_come_out_as_they_went_in():
    content = os.urandom(5000) + b"\r\n--\r\n\r\n" + bytes(range(256))
    form = multipart.parse_form(
        *encoded(files={"file": ("a.pth", content)}, data={"name": "x", "note": "ä"})
    )
    assert form.files == {"file": content}
    assert form.fields == {"name": "x", "note": "ä"}


@pytest.mark.parametrize("content", [b"", b"\r\n", b"--x", b"\r\n--", b"a\r\n--b"])
def test_odd_contents_too(content):
    form = multipart.parse_form(*encoded(files={"file": ("a", content)}))
    assert form.files == {"file": content}


GOOD = (
    b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n'
    b"Content-Type: x\r\n\r\ndata\r\n--B--\r\n"
)


def test_a_form_as_browsers_send_it():
    for kind in ("multipart/form-data; boundary=B", 'multipart/form-data; boundary="B"'):
        assert multipart.parse_form(kind, GOOD).files == {"file": b"data"}
    assert multipart.parse_form("multipart/form-data; boundary=B", b"preamble\r\n" + GOOD).files


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data", GOOD),
        ("multipart/form-data; boundary=", GOOD),
        ("multipart/form-data; boundary=ü", GOOD),
        ("multipart/form-data; boundary=" + "x" * 71, GOOD),
        ("multipart/form-data; boundary=B", b""),
        ("multipart/form-data; boundary=C", GOOD),
        ("multipart/form-data; boundary=B", GOOD[:-6]),
        ("multipart/form-data; boundary=B", GOOD.replace(b'name="file"; ', b"")),
        ("multipart/form-data; boundary=B", GOOD.replace(b"\r\n\r\n", b"\r\n")),
        ("multipart/form-data; boundary=B", GOOD[:-6] + b"\r\n" + GOOD),
        ("multipart/form-data; boundary=B", b"--B\r\n\r\n\r\n" * 40 + b"--B--"),
        (
            "multipart/form-data; boundary=B",
            GOOD.replace(b"Content-Type", b"X" * (20 << 10) + b": x\r\nContent-Type"),
        ),
    ],
)
def test_what_is_no_form_is_refused(kind, body):
    with pytest.raises(Refusal) as caught:
        multipart.parse_form(kind, body)
    assert caught.value.status == 400

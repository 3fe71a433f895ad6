from __future__ import annotations

import httpx
import pytest

from rwkv_server.parent.engine_http import EngineHttp, Flushed, FlushFailed, Load, parse_load


async def flush(answer):
    def child(request):
        assert (request.method, request.url.path) == ("POST", "/internal/flush")
        assert "authorization" not in request.headers
        if isinstance(answer, Exception):
            raise answer
        return answer

    engine = EngineHttp(8000, httpx.MockTransport(child))
    try:
        return await engine.flush(3)
    finally:
        await engine.close()


async def test_what_the_child_has_written_is_read():
    answer = httpx.Response(200, json={"flushed": 2, "failed": 1, "onlyHere": 5, "later": "x"})
    assert await flush(answer) == Flushed(flushed=2, failed=1, onlyHere=5)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (httpx.Response(404), "answered 404"),
        (httpx.Response(200, text="done"), "isn't one"),
        (httpx.Response(200, json={"flushed": -1, "failed": 0, "onlyHere": 0}), "isn't one"),
        (httpx.ReadTimeout("slow"), "not done within 3 s"),
        (httpx.ConnectError("gone"), "doesn't answer: ConnectError"),
    ],
)
async def test_a_child_that_does_not_write_is_told(answer, told):
    with pytest.raises(FlushFailed, match=told):
        await flush(answer)


def test_what_the_child_does_not_tell_is_unknown():
    assert parse_load("") == Load(0, 0, None, None, None)

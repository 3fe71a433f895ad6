"""Initial states that clients send as .pth files, and what is too large to be one."""

from __future__ import annotations

import numpy
import pth_file
from safetensors.numpy import load
from state_app import BINARY, error, export


async def test_what_is_too_large_is_refused_before_it_is_read(http):
    asked = []

    async def endless():
        while len(asked) < 4096:
            asked.append(None)
            yield b"\0" * 65536

    for method, path, kind in [
        ("POST", "/v1/states", BINARY),
        ("POST", "/v1/states", {"content-type": "multipart/form-data; boundary=x"}),
        ("PUT", "/v1/states/name/content", BINARY),
        ("POST", "/v1/rwkv/state/upload", {"content-type": "multipart/form-data; boundary=x"}),
    ]:
        asked.clear()
        answer = await http.request(method, path, content=endless(), headers=kind)
        assert error(answer) == (413, "state_too_large")
        assert len(asked) < 24
        told = {**kind, "content-length": str(2 << 30)}
        asked.clear()
        assert error(await http.request(method, path, content=endless(), headers=told)) == (
            413,
            "state_too_large",
        )
        assert len(asked) < 2


async def test_an_initial_state_comes_as_a_form_or_as_it_is(http, tmp_path):
    entries = {f"blocks.{n}.att.time_state": numpy.ones((1, 64, 64), "f4") * n for n in range(2)}
    content = pth_file.write(tmp_path / "state.pth", entries).read_bytes()
    answer = await http.post(
        "/v1/states", files={"file": ("a.pth", content)}, data={"name": "tuned", "ttl_s": "60"}
    )
    made = answer.json()
    assert (answer.status_code, made["ref"], made["finish_reason"]) == (201, "tuned", "initial")
    assert (made["consumed_tokens"], made["pending_tokens"]) == (0, 0)
    tensors = load(await export(http, "tuned"))
    assert (tensors["layers.1.wkv"] == 1).all() and not tensors["layers.1.att_shift"].any()
    raw = await http.put("/v1/states/other/content", content=content)
    assert raw.json()["sha256"] == made["sha256"]


async def test_a_pth_with_code_or_without_sense_is_refused(http, tmp_path):
    good = {f"blocks.{n}.att.time_state": numpy.ones((1, 64, 64), "f4") for n in range(2)}
    nan = {name: value * float("nan") for name, value in good.items()}
    evil = {**good, "x": pth_file.call("os", "system", "true")}
    for entries in (nan, evil, {}):
        content = pth_file.write(tmp_path / "x.pth", entries).read_bytes()
        answer = await http.post("/v1/states", files={"file": ("a.pth", content)})
        assert answer.status_code == 422, answer.text
    assert (await http.get("/v1/states")).json()["data"] == []

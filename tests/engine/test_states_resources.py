"""States as resources on the served engine: what the page says, moved states go on, no way in."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy
import pth_file
import pytest
from safetensors.numpy import load, save
from server_process import KEY

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "state-api.md"
BLOCK = re.compile(r"```(bash|python)\n(.*?)```", re.DOTALL)
TEXT = "User: My name is Nora.\n\nAssistant: Hello Nora!\n\n"
ASK = "User: What is my name?\n\nAssistant:"
RAW = {"content-type": "application/octet-stream"}


@pytest.fixture(scope="module")
def http(state_server):
    with state_server.client() as client:
        yield client


def complete(http, prompt, **more):
    body = {"model": "chat", "prompt": prompt, "max_tokens": 12, "temperature": 0, **more}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(answer):
    return answer["choices"][0]["text"]


def make(http, **body):
    answer = http.post("/v1/states", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_the_pages_examples_run_as_they_are(state_server, tmp_path):
    programs = {"bash": ["bash", "-euo", "pipefail"], "python": [sys.executable, "-"]}
    environment = os.environ | {"ENDPOINT": state_server.url, "KEY": KEY, "NO_PROXY": "*"}
    (tmp_path / "rwkv-server").write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT}/server exec {sys.executable} -m rwkv_server "$@"\n'
    )
    (tmp_path / "rwkv-server").chmod(0o755)
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    blocks = BLOCK.findall(PAGE.read_text())
    assert {kind for kind, _ in blocks} == {"bash", "python"}
    first = blocks[0][1]
    for kind, code in blocks:
        script = first + code if kind == "bash" else code
        done = subprocess.run(
            programs[kind], input=script, cwd=tmp_path, env=environment,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


def test_the_schema_is_published_by_the_server(http):
    paths = http.get("/openapi.json").json()["paths"]
    assert {"get", "put"} <= paths["/v1/states/{ref}/content"].keys()


def test_a_state_of_a_text_goes_on_like_the_text(http):
    whole = complete(http, TEXT + ASK)
    made = make(http, text=TEXT)
    assert made["finish_reason"] == "prompt"
    resumed = complete(http, ASK, state={"ref": made["ref"]})
    assert text_of(resumed) == text_of(whole)
    assert resumed["state"]["parent"] == made["ref"]


def test_a_state_of_messages_goes_on_like_the_chat(http):
    told = [
        {"role": "user", "content": "Hello, my name is Nora."},
        {"role": "assistant", "content": "Hello, Nora."},
    ]
    question = {"role": "user", "content": "What is my name?"}

    def chat(messages, **more):
        body = {"model": "chat", "messages": messages, "max_tokens": 16, "temperature": 0, **more}
        answer = http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["message"]["content"]

    system = [{"role": "system", "content": "Hello, my name is Nora."}]
    for messages in (told, told[:1], system):
        wish = {"ref": make(http, messages=messages)["ref"]}
        assert chat([question], state=wish) == chat([*messages, question])


def test_a_fork_and_an_import_go_on_like_the_state_that_they_came_from(http):
    saved = complete(http, TEXT + ASK, state={"save": True})["state"]["ref"]
    wanted = text_of(complete(http, "\n\nUser: And again?", state={"ref": saved}))
    fork = http.post(f"/v1/states/{saved}/fork").json()["ref"]
    file = http.get(f"/v1/states/{saved}/content").content
    copy = http.post("/v1/states", content=file, headers=RAW).json()
    assert copy["consumed_tokens"] + copy["pending_tokens"] > 12
    assert http.delete(f"/v1/states/{saved}").status_code == 200
    for ref in (fork, copy["ref"]):
        assert text_of(complete(http, "\n\nUser: And again?", state={"ref": ref})) == wanted


def test_damaged_uploads_never_reach_the_engine(http):
    file = http.get(f"/v1/states/{make(http, text=TEXT)['ref']}/content").content
    tensors = load(file)
    name = sorted(tensors)[0]
    broken = {**tensors, name: numpy.full_like(tensors[name], numpy.inf)}
    before = len(http.get("/v1/states?limit=100").json()["data"])
    for content in (file[:-7], save(broken), b"PK\x03\x04", bytes(1000)):
        answer = http.post("/v1/states", content=content, headers=RAW)
        assert answer.status_code == 422, answer.text
    assert len(http.get("/v1/states?limit=100").json()["data"]) == before
    assert text_of(complete(http, TEXT + ASK))


def test_two_gigabytes_are_refused_before_they_are_sent(state_server):
    head = (
        "PUT /v1/states/huge/content HTTP/1.1\r\nhost: engine\r\n"
        f"authorization: Bearer {KEY}\r\ncontent-length: {2 << 30}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", state_server.port), timeout=30) as connection:
        connection.sendall(head.encode())
        answer = connection.recv(65536).decode()
    assert answer.startswith("HTTP/1.1 413 ")


def test_an_initial_state_changes_what_the_model_says(http, tmp_path):
    file = http.get(f"/v1/states/{make(http, text=TEXT)['ref']}/content").content
    states = {
        f"blocks.{key.split('.')[1]}.att.time_state": value
        for key, value in load(file).items()
        if key.endswith("wkv")
    }
    content = pth_file.write(tmp_path / "state.pth", states).read_bytes()
    tuned = http.post("/v1/states", files={"file": ("state.pth", content)}).json()
    assert (tuned["finish_reason"], tuned["consumed_tokens"]) == ("initial", 0)
    resumed = complete(http, ASK, state={"ref": tuned["ref"]}, logprobs=1)
    fresh = complete(http, ASK, logprobs=1)
    assert resumed["choices"][0]["logprobs"] != fresh["choices"][0]["logprobs"]


def test_old_clients_read_and_write_states(http):
    carried = {"rwkv_state_write_ref": "auto"}
    first = complete(http, TEXT, vllm_xargs=carried, max_tokens=1)
    ref = first["rwkv_state_ref"]
    assert ref.startswith("rwkv-p0-")
    (worker,) = http.get(f"/v1/rwkv/state/{ref}").json()["workers"]
    assert worker["processed_token_count"] + worker["pending_tail_token_count"] > 10
    again = complete(http, ASK, vllm_xargs={"rwkv_state_read_ref": ref})
    assert "rwkv_state_ref" not in again
    assert text_of(again) == text_of(complete(http, ASK, state={"ref": ref}))
    assert http.delete(f"/v1/rwkv/state/{ref}").json()["action"] == "delete"

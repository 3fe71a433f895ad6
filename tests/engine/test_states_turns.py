"""Turns with states over HTTP, on a served engine whose greedy answers an official model judges."""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import tokenizers
import torch
from engine_nursery import EngineNursery
from server_process import ServerProcess

LIMIT = 512  # tokens of one turn
STORE = "persistentVolumeClaim"  # no peers to ask for a session
SUPPORT = Path(__file__).parents[1] / "support"
WORDS = "my name is Bob and the code word you asked for was blue. What is it? Tell me".split()
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


class Client:
    """Greedy requests, and the tokens of texts."""

    def __init__(self, server: ServerProcess, model: Any, ahead: bool = False) -> None:
        self.ahead = ahead
        # vLLM 0.18 closes a connection after some of its refusals, without telling.
        self.http = server.client(limits=httpx.Limits(max_keepalive_connections=0))
        self._tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def post(self, path: str, **body: Any) -> Any:
        return self.http.post(path, json={"model": "chat", "temperature": 0, **body})

    def ask(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.post(path, **body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def complete(self, prompt: Any, **body: Any) -> dict[str, Any]:
        return self.ask(COMPLETIONS, prompt=prompt, **body)

    def stream(self, path: str, **body: Any) -> list[dict[str, Any]]:
        *events, last, rest = self.post(path, stream=True, **body).text.split("\n\n")
        assert (last, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]


@pytest.fixture(scope="module", params=["in step", pytest.param("ahead", marks=pytest.mark.long)])
def client(request, tiny_model, tmp_path_factory):
    """Of an engine as CPUs have it, and of one that schedules a step ahead, as GPUs have it."""
    if request.param == "in step":
        server = request.getfixturevalue("state_server")
    else:
        server = start_ahead(tmp_path_factory.mktemp("ahead"), tiny_model)
        request.addfinalizer(server.stop)
    client = Client(server, tiny_model, request.param == "ahead")
    yield client
    client.http.close()


def start_ahead(folder: Path, model: Path) -> ServerProcess:
    path = os.pathsep.join([str(SUPPORT / "forced_async"), str(SUPPORT)])
    sizes = {"model__maxModelLen": LIMIT, "engine__maxNumBatchedTokens": 64}
    server = ServerProcess(folder, model, path, state__store=STORE, **sizes)
    try:
        server.wait_until_ready(400)
    except BaseException:
        server.stop()
        raise
    return server


def text_of(answer: dict[str, Any]) -> str:
    choice = answer["choices"][0]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def dialogue(client: Client, seed: int, turns: int) -> list[tuple[list[int], list[int]]]:
    """What was said and answered, as tokens, in turns that know only their state."""
    chance, ref, said = random.Random(seed), None, []
    for _ in range(turns):
        new = client.encode(" ".join(chance.choices(WORDS, k=chance.randint(1, 9))) + "\n\n")
        count = chance.randint(1, 30)
        state = {"save": True} | ({} if ref is None else {"ref": ref})
        body = {"max_tokens": count, "ignore_eos": True, "state": state}
        if chance.random() < 0.5:
            chunks = client.stream(COMPLETIONS, prompt=new, **body)
            text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
            told = chunks[-1]["state"]
        else:
            answer = client.complete(new, **body)
            text, told = text_of(answer), answer["state"]
        assert (told["parent"], told["resumed"]) == (ref, ref is not None)
        output = client.encode(text)
        assert len(output) == count
        said.append((new, output))
        ref = told["ref"]
        in_all = sum(len(new) + len(output) for new, output in said)
        assert told["consumed_tokens"] + told["pending_tokens"] == in_all
    return said


def test_long_dialogues_are_those_of_an_uninterrupted_run(client, tiny_oracle):
    with ThreadPoolExecutor() as pool:
        said = list(pool.map(lambda seed: dialogue(client, seed, 24), range(3)))
    for turns in said:
        tokens = [token for new, output in turns for token in (*new, *output)]
        assert len(tokens) > LIMIT
        choices = tiny_oracle.read(tokens).argmax(-1)
        at = 0
        for new, output in turns:
            at += len(new)
            assert torch.equal(choices[at - 1 : at - 1 + len(output)], torch.tensor(output))
            at += len(output)


ENDS = [
    ({"max_tokens": 5}, "My name is Bob.", "My na"),
    ({}, "My name is Bob.", "My name is Bob."),
    ({"stop": "is"}, "My name is Bob.", "My name "),
    ({"stop": ["xyz", "My"]}, "My name is Bob.", ""),
    ({"stop": "é"}, "aé b", "a"),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("options", "forced", "seen"), ENDS)
def test_what_the_client_sees_is_what_is_saved(client, options, forced, seen, stream):
    body = {
        "prompt": "Hello.", "max_tokens": 40, "state": {"save": True},
        "structured_outputs": {"choice": [forced]}, **options,
    }  # fmt: skip
    if stream:
        chunks = client.stream(COMPLETIONS, **body)
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
        told = chunks[-1]["state"]
    else:
        answer = client.ask(COMPLETIONS, **body)
        text, told = text_of(answer), answer["state"]
    assert text == seen
    check_text(client, told["ref"], "Hello." + seen)


def check_text(client: Client, ref: str, text: str) -> None:
    """Whoever goes on from the state, goes on from exactly this text."""
    more = {"max_tokens": 12, "ignore_eos": True}
    resumed = client.complete(" And?", state={"ref": ref}, **more)
    assert text_of(resumed) == text_of(client.complete(text + " And?", **more))
    assert resumed["usage"]["prompt_tokens"] == len(client.encode(" And?"))


def test_a_stop_token_is_not_part_of_the_text(client):
    prompt = "My name is Bob.\n\n"
    free = text_of(client.complete(prompt, max_tokens=30, ignore_eos=True))
    last = free[7]
    body = {"max_tokens": 30, "ignore_eos": True, "stop_token_ids": client.encode(last)}
    answer = client.complete(prompt, state={"save": True}, **body)
    seen = free.partition(last)[0]
    assert text_of(answer) == seen
    # A step ahead the engine has read the stop, too: its last state is none of this text.
    assert answer["state"]["pending_tokens"] == (len(seen) if client.ahead else 0)
    check_text(client, answer["state"]["ref"], prompt + seen)


def test_a_session_is_the_chat_that_sends_everything(client):
    messages: list[dict[str, str]] = [{"role": "system", "content": "Be kind."}]
    new: list[dict[str, str]] = list(messages)
    for turn, said in enumerate(("My name is Bob.", "What is my name?", "Thank you.")):
        messages.append({"role": "user", "content": said})
        new.append({"role": "user", "content": said})
        whole = client.ask(CHAT, messages=messages, max_tokens=30)
        state = {"session": True if turn else "new"}
        body = {"messages": new, "max_tokens": 30, "state": state, "session_id": "kind"}
        if turn == 1:
            chunks = client.stream(CHAT, **body)
            text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
        else:
            text = text_of(client.ask(CHAT, **body))
        assert text == text_of(whole) != ""
        messages.append({"role": "assistant", "content": text})
        new = []
    session = client.http.get("/v1/sessions/kind").json()
    assert session["turns"] == 3


def test_a_text_that_vllm_takes_for_no_text(client):
    told = [
        {"role": "user", "content": "My name is Bob."},
        {"role": "assistant", "content": "Nice to meet you, Bob."},
    ]
    part = {"type": "text", "text": "What is my name?", "image_url": None}
    answers = [
        client.ask(CHAT, messages=[*told, {"role": "user", "content": content}], max_tokens=20)
        for content in ("What is my name?", [part], "What is my name?")
    ]
    assert len({text_of(answer) for answer in answers}) == 1
    assert len({answer["usage"]["prompt_tokens"] for answer in answers}) == 1


def test_forks_in_one_batch(client):
    base = client.complete(
        "My name is Bob.\n\n", max_tokens=4, ignore_eos=True, state={"save": True}
    )
    ref, text = base["state"]["ref"], "My name is Bob.\n\n" + text_of(base)
    more = {"max_tokens": 20, "ignore_eos": True}
    said = [f" Fork {number}" for number in range(6)]
    with ThreadPoolExecutor() as pool:
        forks = list(
            pool.map(lambda s: client.complete(s, state={"ref": ref, "save": True}, **more), said)
        )
    plain = [text_of(client.complete(text + s, **more)) for s in said]
    assert [text_of(fork) for fork in forks] == plain
    assert len({fork["state"]["ref"] for fork in forks}) == 6


def test_two_turns_of_a_session_at_once(client):
    body = {"prompt": "Hello", "session_id": "busy", "ignore_eos": True}
    client.ask(COMPLETIONS, state={"session": "new"}, max_tokens=2, **body)
    body |= {"state": {"session": True}, "max_tokens": 200}
    request = {"model": "chat", "stream": True, **body}
    with client.http.stream("POST", COMPLETIONS, json=request) as first:
        parts = first.iter_text()
        next(parts)
        second = client.post(COMPLETIONS, **body)
        assert (second.status_code, second.json()["error"]["code"]) == (409, "session_conflict")
        rest = "".join(parts)
    head = json.loads(rest.split("data: ")[-2])["state"]["ref"]
    third = client.ask(COMPLETIONS, **{**body, "max_tokens": 1})
    assert third["state"]["parent"] == head


def test_a_client_that_leaves_leaves_the_session_as_it_was(client):
    body = {"prompt": "Hello", "session_id": "left", "ignore_eos": True}
    first = client.ask(COMPLETIONS, state={"session": "new"}, max_tokens=2, **body)
    body |= {"state": {"session": True}}
    request = {"model": "chat", "stream": True, "max_tokens": 200, **body}
    with client.http.stream("POST", COMPLETIONS, json=request) as answer:
        next(answer.iter_raw())
    deadline = time.monotonic() + 30
    while (again := client.post(COMPLETIONS, max_tokens=2, **body)).status_code == 409:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert again.json()["state"]["parent"] == first["state"]["ref"]


def test_refusals_leave_a_session_as_it_was(client):
    body = {"session_id": "strict", "max_tokens": 2}
    client.ask(COMPLETIONS, prompt="a", state={"session": "new"}, **body)
    body["state"] = {"session": True}
    long = client.post(COMPLETIONS, prompt="b" * 2 * LIMIT, **body)
    assert long.status_code == 400 and "length" in long.json()["error"]["message"]
    assert client.post(COMPLETIONS, prompt="b", n=2, **body).status_code == 400
    wrong = client.post(COMPLETIONS, prompt="b", temperature=-1, **body)
    assert wrong.status_code == 400
    assert client.ask(COMPLETIONS, prompt="b", **body)["state"]["ref"]


def test_a_text_that_nobody_answers(client):
    made = client.http.post("/v1/states", json={"text": "My name is Bob."}).json()
    assert (made["consumed_tokens"], made["pending_tokens"]) == (15, 0)
    check_text(client, made["ref"], "My name is Bob.")


def test_nothing_is_held_at_the_end(client):
    metrics = client.http.get("/metrics").text
    assert "rwkv_state_saves_total" in metrics
    flushed = client.http.post("/internal/flush").json()
    assert flushed["failed"] == 0


@pytest.mark.long
def test_a_state_outlives_its_pod(nursery, tiny_model, tmp_path):
    more = {"max_tokens": 12, "ignore_eos": True}
    with one_pod(nursery, tmp_path, tiny_model) as client:
        body = {"prompt": "My name is Bob.", "max_tokens": 9, "session_id": "s"}
        first = client.ask(COMPLETIONS, state={"session": "new"}, **body)
    with one_pod(nursery, tmp_path, tiny_model) as client:
        ref = first["state"]["ref"]
        resumed = client.complete(" What", state={"ref": ref, "save": True}, **more)
        assert resumed["state"]["source"] == "durable"
        text = "My name is Bob." + text_of(first) + " What"
        assert text_of(resumed) == text_of(client.complete(text, **more))
        going_on = client.complete("x", state={"session": True}, session_id="s", max_tokens=2)
        assert going_on["state"]["parent"] == ref


@contextlib.contextmanager
def one_pod(nursery: EngineNursery, folder: Path, model: Path) -> Iterator[Client]:
    server = nursery.pod(folder, model, state__store=STORE)
    try:
        server.wait_until_ready(400)
        client = Client(server, model)
        yield client
        client.http.close()
    finally:
        server.stop()

"""Chats that go on from a state made of messages read what an uninterrupted chat reads."""

from __future__ import annotations

import paper_engine
import paper_server
import pytest
from paper_engine import encode

SYSTEM = {"role": "system", "content": "Be brief"}
ASKED = {"role": "user", "content": "My name is Bob"}
SAID = {"role": "assistant", "content": "Hello Bob"}
TOLD = {"role": "tool", "content": "4"}
NEW = {"role": "user", "content": "What is my name?"}
RAW = {"content-type": "application/octet-stream"}


@pytest.fixture
async def server(tmp_path):
    async with paper_server.serve(tmp_path) as server:
        yield server


async def make(server, **body):
    answer = await server.client.post("/v1/states", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def chat(server, said, ref=None):
    answer = await server.chat(said, None if ref is None else {"ref": ref}, max_tokens=8)
    return answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "messages",
    [[SYSTEM], [ASKED], [SYSTEM, ASKED], [ASKED, SAID], [ASKED, SAID, TOLD]],
    ids=lambda messages: messages[-1]["role"],
)
async def test_the_turns_joint_is_read(server, messages):
    made = await make(server, messages=messages)
    assert made["last_role"] == messages[-1]["role"]
    assert await chat(server, [NEW], made["ref"]) == await chat(server, [*messages, NEW])


async def test_a_fork_and_a_copy_that_was_exported_keep_it(server):
    made = await make(server, messages=[SYSTEM])
    fork = await server.client.post(f"/v1/states/{made['ref']}/fork", json={})
    file = await server.client.get(f"/v1/states/{made['ref']}/content")
    copy = await server.client.post("/v1/states", content=file.content, headers=RAW)
    whole = await chat(server, [SYSTEM, NEW])
    for answer in (fork, copy):
        assert answer.status_code == 201, answer.text
        assert answer.json()["last_role"] == "system"
        assert await chat(server, [NEW], answer.json()["ref"]) == whole


async def test_tools_of_a_chats_beginning_are_not_told_again(server):
    made = await make(server, messages=[SYSTEM])
    asked = len(server.engine.rendered)
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    await server.chat([NEW], {"ref": made["ref"]}, max_tokens=8, tools=[tool])
    assert all("tools" not in body for body in server.engine.rendered[asked:])


async def test_a_text_ends_as_it_was_sent(server):
    made = await make(server, text="User: My name is Bob\n\n")
    assert made["last_role"] is None
    answer = await server.chat([NEW], {"ref": made["ref"]}, max_tokens=8)
    new = encode("User: What is my name?\n\nAssistant:")
    assert answer["usage"]["prompt_tokens"] == len(new)
    tokens = server.engine.prompts[-1]
    assert tokens == [paper_engine.PLACEHOLDER, *new]


async def test_an_answer_after_it_is_an_answer(server):
    made = await make(server, messages=[SYSTEM])
    state = {"ref": made["ref"], "save": True}
    answer = await server.chat([NEW], state, force="Bob", max_tokens=20)
    record = await server.runtime.store.get("default", answer["state"]["ref"])
    assert record.last_role is None
    went_on = await server.chat([ASKED], {"ref": record.ref}, max_tokens=8)
    new = encode("\n\nUser: My name is Bob\n\nAssistant:")
    assert went_on["usage"]["prompt_tokens"] == len(new)


async def test_a_text_as_long_as_the_model_reads_is_refused_in_its_own_words(server):
    longest = paper_engine.environment(server.engine.told.shm.parent).max_model_len - 1
    await make(server, text="x" * longest)
    for field, text in [
        ("text", "x" * (longest + 1)),
        ("messages", [{**ASKED, "content": "x" * longest}]),
    ]:
        answer = await server.client.post("/v1/states", json={field: text})
        assert answer.status_code == 400
        found = answer.json()["error"]
        assert (found["code"], found["param"]) == ("context_length_exceeded", field)
        assert f"at most {longest}" in found["message"]

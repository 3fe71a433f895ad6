"""Responses with states: kept under their id, gone on from, and told as vLLM tells them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import paper_engine
import paper_server
import pytest
from paper_engine import PLACEHOLDER, decode, encode, render
from paper_server import PaperServer

from rwkv_server.states.web import responses


@pytest.fixture(params=[{}, {"ahead": True}, {"old": True}], ids=["in step", "ahead", "as 0.18"])
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[PaperServer]:
    async with paper_server.serve(tmp_path, **request.param) as server:
        yield server


async def respond(server: PaperServer, said: Any, **body: Any) -> dict[str, Any]:
    answer = await server.post("/v1/responses", input=said, **{"max_tokens": 9, **body})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def run_on(tokens: list[int], count: int) -> list[int]:
    """What the engine says after these tokens."""
    state, output = paper_engine.read(tokens), []
    for _ in range(count):
        output.append(paper_engine.choose(state))
        state = paper_engine.step(state, output[-1])
    return output


async def test_turns_are_those_of_one_run(server: PaperServer) -> None:
    opening = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "question 0"},
    ]
    new, whole = encode(render(opening, True)), []
    previous, asked = None, {"instructions": "Be brief."}
    for turn in range(4):
        said = await respond(server, f"question {turn}", previous_response_id=previous, **asked)
        whole += new
        output = run_on(whole, 9)
        assert text_of(said) == decode(output)
        whole += output
        assert said["previous_response_id"] == previous
        assert said["store"] is True
        assert said["state"]["ref"] == said["id"]
        assert said["state"]["parent"] == previous
        assert "kv_transfer_params" not in said
        assert said["usage"]["input_tokens"] == len(new)
        previous, asked = said["id"], {}
        new = encode(f"\n\nUser: question {turn + 1}\n\nAssistant:")


async def test_what_was_answered_is_told_again_until_it_is_deleted(server: PaperServer) -> None:
    said = await respond(server, "Hi")
    path = f"/v1/responses/{said['id']}"
    assert (await server.client.get(path)).json() == said
    other = {"x-rwkv-tenant": "eve"}
    assert code_of(await server.client.get(path, headers=other)) == (404, "state_not_found")
    assert (await server.client.delete(path)).status_code == 200
    assert code_of(await server.client.get(path)) == (404, "state_not_found")
    gone = await server.post("/v1/responses", input="More", previous_response_id=said["id"])
    assert code_of(gone) == (404, "state_not_found")


async def test_events_are_vllms_with_our_id_and_the_last_one_waits(server: PaperServer) -> None:
    first = await respond(server, "Hi")
    asked = {"input": "More", "previous_response_id": first["id"], "max_tokens": 9}
    answer = await server.post("/v1/responses", stream=True, **asked)
    events = [
        json.loads(event.partition("\ndata: ")[2]) for event in answer.text.split("\n\n")[:-1]
    ]
    whole = [event["response"] for event in events if "response" in event]
    assert [event["type"] for event in (*events[:2], events[-1])] == [
        "response.created",
        "response.in_progress",
        "response.completed",
    ]
    last = whole[-1]
    assert {one["id"] for one in whole} == {last["id"]}
    assert {one["previous_response_id"] for one in whole} == {first["id"]}
    deltas = "".join(event.get("delta", "") for event in events)
    assert deltas == text_of(last) == text_of(await respond(server, **_again(asked)))
    assert last["state"]["ref"] == last["id"]
    assert (await server.client.get(f"/v1/responses/{last['id']}")).json() == last


def _again(asked: dict[str, Any]) -> dict[str, Any]:
    return {"said": asked["input"], "previous_response_id": asked["previous_response_id"]}


async def test_what_is_not_stored_is_vllms_own(server: PaperServer) -> None:
    said = await respond(server, "Hi", store=False)
    assert said["id"] == "resp_of_vllm"
    assert "state" not in said and "kv_transfer_params" not in server.engine.seen[-1]
    assert code_of(await server.client.get("/v1/responses/resp_of_vllm")) == (
        404,
        "state_not_found",
    )


async def test_an_unstored_turn_goes_on_from_a_stored_one(server: PaperServer) -> None:
    first = await respond(server, "Hi")
    said = await respond(server, "More", previous_response_id=first["id"], store=False)
    assert said["store"] is False and said["state"]["ref"] is None
    tokens = server.engine.prompts[-1]
    assert tokens[0] == PLACEHOLDER


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"previous_response_id": "p0-x", "state": {"ref": "y"}}, "previous_response_id"),
        ({"previous_response_id": "no id !"}, "previous_response_id"),
        ({"state": {"save": "mine"}}, "state.save"),
        ({"store": True, "tools": [{"type": "web_search"}]}, "input"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_refusals_name_the_field(
    server: PaperServer, body: dict[str, Any], param: str
) -> None:
    answer = await server.post("/v1/responses", input="Hi", **body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert not server.engine.seen


async def test_what_cannot_be_kept_is_answered_if_nobody_insists(server: PaperServer) -> None:
    said = await respond(server, "Hi", tools=[{"type": "web_search"}])
    assert said["id"] == "resp_of_vllm"


async def test_a_stop_string_ends_the_state_where_it_ends_the_text(server: PaperServer) -> None:
    forced = "one two.\nthree four"
    first = await respond(server, "Hi", force=forced, stop=["three"], max_tokens=20)
    assert text_of(first) == "one two.\n"
    said = await respond(server, "More", previous_response_id=first["id"])
    whole = encode(render([{"role": "user", "content": "Hi"}], True)) + encode("one two.\n")
    whole += encode("\n\nUser: More\n\nAssistant:")
    assert text_of(said) == decode(run_on(whole, 9))


async def test_no_part_of_an_input_makes_vllm_forget_the_tokens(server: PaperServer) -> None:
    part = {"type": "input_text", "text": "More", "image_url": None}
    first = await respond(server, "Hi")
    texts = [
        text_of(await respond(server, said, previous_response_id=first["id"]))
        for said in ("More", [{"role": "user", "content": [part]}])
    ]
    assert texts[0] == texts[1]
    assert server.engine.seen[-1]["input"] == "-"


@pytest.mark.parametrize("old", [False, True], ids=["", "as 0.18"])
async def test_a_client_that_resends_all_reads_only_its_tail(tmp_path: Path, old: bool) -> None:
    async with paper_server.serve(tmp_path, automaticReuse="Memory", old=old) as server:
        for store in (True, False):
            said: list[dict[str, Any]] = [{"role": "user", "content": f"Hi {store}"}]
            for turn in range(3):
                response = await respond(server, said, store=store)
                tokens = server.engine.prompts[-1]
                assert (tokens[0] == PLACEHOLDER) is (turn > 0)
                assert (response["usage"]["input_tokens_details"]["cached_tokens"] > 0) is (
                    turn > 0
                )
                assert ("state" in response) is store
                said += [*response["output"], {"role": "user", "content": "more"}]


@pytest.mark.parametrize(
    ("whole", "stops", "said", "wanted"),
    [
        ("a b\n\nUser: c", [], "a b", "\n\nUser:"),
        ("a b\n\nUser: c X", ["X"], "a b\n\nUser: c", "X"),
        ("thought, then X", ["X"], "then", "X"),
        ("nothing", ["X"], "nothing", None),
    ],
    ids=["the format's own", "the request's", "words are a part", "none"],
)
def test_which_stop_it_was(whole: str, stops: list[str], said: str, wanted: str | None) -> None:
    assert responses.find_stop_string(whole, stops, said) == wanted


@pytest.mark.parametrize(
    ("stop", "wanted"), [(None, []), ("X", ["X"]), (["X", 5], ["X"]), (5, []), ([], [])], ids=str
)
def test_stops_are_texts(stop: Any, wanted: list[str]) -> None:
    assert responses.stops_of({"stop": stop}) == wanted

"""The layer over an engine whose every answer depends on every token before."""

from __future__ import annotations

import asyncio
import random

import paper_engine
import paper_server
import pytest
from paper_engine import decode, encode

WORDS = "the cat sat on a mat, and User: then\n\nit ran. abc élan 龘".split(" ")


@pytest.fixture(params=[{}, {"ahead": True}, {"old": True}], ids=["in step", "ahead", "as 0.18"])
async def server(tmp_path, request):
    async with paper_server.serve(tmp_path, **request.param) as server:
        yield server


def told(answer):
    return answer["state"]


def text_of(answer):
    choice = answer["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"]


class Whole:
    """What was said so far, token by token, as an uninterrupted run would have it."""

    def __init__(self):
        self.tokens = []

    def expect(self, new, count):
        self.tokens += new
        state = paper_engine.read(self.tokens)
        output = []
        for _ in range(count):
            output.append(paper_engine.choose(state))
            state = paper_engine.step(state, output[-1])
        return output


async def test_twenty_four_turns_are_those_of_one_run(server):
    rng, whole, ref = random.Random(3), Whole(), None
    for turn in range(24):
        said = " ".join(rng.choices(WORDS, k=rng.randrange(1, 9)))
        count = rng.randrange(1, 20)
        state = {"save": True} if ref is None else {"save": True, "ref": ref}
        noise = server.complete("noise", {"save": True}, max_tokens=3)
        answer, _ = await asyncio.gather(server.complete(said, state, max_tokens=count), noise)
        output = whole.expect(encode(said), count)
        assert text_of(answer) == decode(output)
        whole.tokens += output
        assert told(answer)["parent"] == ref
        assert told(answer)["resumed"] is (turn > 0)
        in_all = told(answer)["consumed_tokens"] + told(answer)["pending_tokens"]
        assert in_all == len(whole.tokens)
        ref = told(answer)["ref"]


ENDS = [
    ({"max_tokens": 7}, "lengthily", "length", 7),
    ({}, "fine", "stop", None),
    ({"stop_token_ids": [ord("x")]}, "abcxyz", "stop", None),
    ({"stop": "END"}, "good dayEND and more", "stop", "good day"),
    ({"stop": ["nope", "\nU"]}, "ablo.\n\nUser: hi", "stop", "ablo.\n"),
    ({"stop": ["ser:"]}, "abUser: hi", "stop", "abU"),
    ({"stop": "lo"}, "hello.", "stop", "hel"),
    ({"stop": "龘"}, "é龘 x", "stop", "é"),
    ({"stop": "a"}, "abc", "stop", ""),
]


@pytest.mark.parametrize(("options", "forced", "reason", "seen"), ENDS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_what_the_client_sees_is_what_is_saved(server, options, forced, reason, seen, stream):
    body = {"prompt": "say ", "force": forced, "max_tokens": 40, **options}
    if seen is None:
        seen = forced.partition("x")[0]
    elif seen == 7:
        seen = forced[:7]
    if stream:
        chunks = await server.stream("/v1/completions", state={"save": True}, **body)
        text = "".join(c["choices"][0]["text"] for c in chunks if c["choices"])
        last = chunks[-1]
        assert last["choices"][0]["finish_reason"] == reason
    else:
        last = await server.complete(body.pop("prompt"), {"save": True}, **body)
        text = text_of(last)
        assert last["choices"][0]["finish_reason"] == reason
    assert text == seen
    record = await server.runtime.store.get("default", told(last)["ref"])
    assert record.text_tokens == len(encode("say ")) + len(encode(seen))
    # Whoever goes on, goes on from exactly this text.
    answer = await server.complete("next", {"ref": record.ref}, max_tokens=9)
    whole = Whole()
    whole.tokens = [*encode("say "), *encode(seen)]
    assert text_of(answer) == decode(whole.expect(encode("next"), 9))


async def test_forks_do_not_disturb_each_other(server):
    base = told(await server.complete("once upon a time", {"save": True}, max_tokens=4))["ref"]
    whole = encode("once upon a time")
    whole += Whole().expect(list(whole), 4)
    said = [f"fork {number}" for number in range(8)]
    answers = await asyncio.gather(
        *(server.complete(s, {"ref": base, "save": True}, max_tokens=6) for s in said)
    )
    for text, answer in zip(said, answers, strict=True):
        mine = Whole()
        mine.tokens = list(whole)
        assert text_of(answer) == decode(mine.expect(encode(text), 6))
        assert told(answer)["parent"] == base
    assert len({told(answer)["ref"] for answer in answers}) == 8


async def test_a_chat_sends_only_what_is_new(server):
    first = await server.chat("hello", {"save": True}, force="hi you", max_tokens=20)
    state = {"ref": told(first)["ref"], "save": True}
    second = await server.chat("and now?", state, force="bye", max_tokens=20)
    tokens = server.engine.prompts[-1]
    new = encode("\n\nUser: and now?\n\nAssistant:")
    assert tokens[0] == paper_engine.PLACEHOLDER
    assert tokens[-len(new) :] == new
    record = await server.runtime.store.get("default", told(second)["ref"])
    whole = "User: hello\n\nAssistant:" + "hi you" + "\n\nUser: and now?\n\nAssistant:" + "bye"
    assert record.text_tokens == sum(map(len, map(encode, whole.split("hi you")))) + len(
        encode("hi you")
    )
    assert second["usage"]["prompt_tokens"] == len(new)


async def test_what_vllm_would_make_its_own_tokens_of_stays_here(server):
    part = {"type": "text", "text": "hello", "image_url": None}
    messages = [{"role": "user", "content": [part]}]
    await server.chat(messages, {"save": True}, force="hi", max_tokens=9)
    assert server.engine.seen[-1]["messages"] == [{"role": "user", "content": "-"}]
    assert server.engine.prompts[-1] == encode("User: hello\n\nAssistant:")


async def test_usage_counts_the_clients_tokens(server):
    first = await server.complete("abcd", {"save": True}, max_tokens=5)
    ref = told(first)["ref"]
    body = {"prompt": "xyz", "max_tokens": 4, "state": {"ref": ref, "save": True}}
    whole = (await server.post("/v1/completions", **body)).json()["usage"]
    assert (whole["prompt_tokens"], whole["completion_tokens"], whole["total_tokens"]) == (3, 4, 7)
    silent = await server.stream("/v1/completions", **body)
    assert all("usage" not in chunk for chunk in silent)
    asked = await server.stream("/v1/completions", **body, stream_options={"include_usage": True})
    assert asked[-1]["usage"]["prompt_tokens"] == 3
    assert asked[-1]["choices"] == [] and told(asked[-1])["ref"]


async def test_a_name_of_ones_own_needs_a_shared_store(server):
    answer = await server.post("/v1/completions", prompt="a", state={"save": "mine"})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "state_needs_shared_store"


async def test_names_on_a_shared_store(tmp_path):
    async with paper_server.serve(tmp_path, store="persistentVolumeClaim") as server:
        answer = await server.complete("a", {"save": "mine"}, max_tokens=3)
        assert told(answer)["ref"] == "mine"
        again = await server.post("/v1/completions", prompt="a", state={"save": "mine"})
        assert (again.status_code, again.json()["error"]["code"]) == (409, "state_exists")
        assert len(server.engine.seen) == 1
        old = {"rwkv_state_read_ref": "mine", "rwkv_state_write_ref": "two"}
        answer = await server.complete("b", vllm_xargs=old, max_tokens=3)
        assert answer["rwkv_state_ref"] == "two" and "state" not in answer


async def test_a_state_outlives_the_process(tmp_path):
    async with paper_server.serve(tmp_path) as server:
        first = await server.complete("remember", {"save": True}, max_tokens=5)
        state = {"ref": told(first)["ref"]}
        hot = await server.complete("x", state, max_tokens=9)
        assert told(hot)["source"] == "hot"
    async with paper_server.serve(tmp_path) as server:
        cold = await server.complete("x", state, max_tokens=9)
        assert told(cold)["source"] == "durable"
        assert text_of(cold) == text_of(hot)
        assert told(await server.complete("x", state, max_tokens=9))["source"] == "hot"


async def test_sessions(server):
    async def turn(said, session, **more):
        return await server.post(
            "/v1/chat/completions",
            messages=[{"role": "user", "content": said}],
            state={"session": session},
            session_id="s1",
            max_tokens=6,
            **more,
        )

    none = await turn("a", True)
    assert (none.status_code, none.json()["error"]["code"]) == (404, "state_not_found")
    first = (await turn("a", "new")).json()
    assert told(first)["session"] == "s1"
    again = await turn("a", "new")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "session_conflict")
    second = (await turn("b", True)).json()
    assert told(second)["parent"] == told(first)["ref"]
    third = (await turn("b", True)).json()
    assert told(third)["parent"] == told(second)["ref"]


async def test_the_second_of_two_turns_loses_before_its_first_byte(server):
    body = {"prompt": "a", "session_id": "s", "max_tokens": 3, "stream": True}
    await server.post("/v1/completions", state={"session": "new"}, **body)
    server.engine.gate = asyncio.Event()
    first = asyncio.create_task(server.post("/v1/completions", state={"session": True}, **body))
    while len(server.engine.seen) < 2:
        await asyncio.sleep(0)
    second = await server.post("/v1/completions", state={"session": True}, **body)
    assert (second.status_code, second.json()["error"]["code"]) == (409, "session_conflict")
    server.engine.gate.set()
    assert (await first).status_code == 200
    third = await server.post("/v1/completions", state={"session": True}, **body)
    assert third.status_code == 200


async def test_what_vllm_refuses_ends_the_turn(tmp_path):
    async with paper_server.serve(tmp_path, limit=30) as server:
        body = {"session_id": "s", "max_tokens": 3}
        await server.post("/v1/completions", prompt="a", state={"session": "new"}, **body)
        state = {"session": True}
        long = await server.post("/v1/completions", prompt="b" * 40, state=state, **body)
        assert (long.status_code, long.json()["error"]["message"]) == (400, "too long")
        short = await server.post("/v1/completions", prompt="b", state=state, **body)
        assert short.status_code == 200
        assert server.runtime.hot.use.pinned == 0


async def test_nothing_is_held_after_all_that(server):
    ref = told(await server.complete("a", {"save": True}, max_tokens=3))["ref"]
    await asyncio.gather(
        *(server.complete("b", {"ref": ref, "save": True}, max_tokens=3) for _ in range(20))
    )
    await server.stream("/v1/completions", prompt="x", state={"ref": ref})
    assert server.runtime.hot.use.pinned == 0
    assert server.runtime.turns.open == 0
    assert not server.runtime.turns.in_use("default", ref)


async def test_requests_without_a_wish_pass_as_they_are(server):
    answer = await server.post("/v1/completions", prompt="the state of things", max_tokens=3)
    assert "state" not in answer.json()
    assert server.engine.asked == ["/v1/completions"]
    assert server.engine.seen[0] == {
        "model": "chat", "prompt": "the state of things", "max_tokens": 3,
    }  # fmt: skip


async def test_refusals_come_in_openais_shape(server):
    cases = [
        ({"state": {"ref": "p0-aaaaaaaa-x"}}, 410, "state_lost"),
        ({"state": {"ref": "unknown"}}, 404, "state_not_found"),
        ({"state": {}, "n": 2}, 400, "state_unsupported_option"),
        ({"state": {}, "prompt": ["a", "b"]}, 400, "state_unsupported_option"),
        ({"state": {"save": True}, "prompt": ""}, 400, "state_unsupported_option"),
        ({"state": {"save": True}, "prompt": None}, 400, "state_unsupported_option"),
        ({"state": {"save": True}, "prompt": [1, True]}, 400, "state_unsupported_option"),
    ]
    for body, status, code in cases:
        answer = await server.post("/v1/completions", **{"prompt": "a", **body})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), body
    assert server.engine.seen == []


async def test_a_chat_without_messages_is_refused(server):
    answer = await server.post("/v1/chat/completions", state={"save": True})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")


async def test_options_of_a_stream_that_are_none_are_vllms_to_refuse(server):
    body = {"prompt": "a", "state": {"save": True}, "stream": True, "stream_options": [1]}
    with pytest.raises(AttributeError, match="get"):  # what the engine on paper does with it
        await server.post("/v1/completions", **body)
    assert server.runtime.hot.use.pinned == 0


async def test_a_chat_that_vllm_renders_anew_is_no_answer(tmp_path):
    async with paper_server.serve(tmp_path, old=True, deaf=True) as server:
        for stream in (False, True):
            asked = {"messages": [{"role": "user", "content": "Hi"}], "stream": stream}
            answer = await server.post(
                "/v1/chat/completions", state={"save": True}, max_tokens=2, **asked
            )
            assert answer.status_code == 500
            error = answer.json()["error"]
            assert error["code"] == "state_error" and "without the tokens" in error["message"]
        assert server.runtime.hot.use.pinned == 0
        assert not (await server.client.get("/v1/states")).json()["data"]

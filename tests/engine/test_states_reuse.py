"""Stock clients on a served engine: chats that resend everything, and the SDK's Responses."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from engine_nursery import EngineNursery
from server_process import KEY, ServerProcess

LIMIT = 512  # tokens of one prompt
LONG_LIMIT = 16384
TURN = 60  # tokens that a long chat's turn says
WORDS = "my name is Bob and the code word you asked for was blue What is it Tell me".split()


def client_of(server: ServerProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)


@pytest.fixture(scope="module")
def sdk(state_server: ServerProcess) -> Iterator[openai.OpenAI]:
    with client_of(state_server) as client:
        yield client


def ask(sdk: openai.OpenAI, messages: list[Any], **options: Any) -> tuple[str, int, int]:
    """The reply, and the tokens of its prompt in all and from before."""
    stream = sdk.chat.completions.create(
        model="chat",
        messages=messages,
        max_tokens=24,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        **options,
    )
    text, usage = "", None
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
        usage = chunk.usage or usage
        assert "state" not in chunk.model_extra
    assert usage is not None
    details = usage.prompt_tokens_details
    return text, usage.prompt_tokens, (details and details.cached_tokens) or 0


def said(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(2, 8))) + "."


def test_a_chat_that_resends_everything_reads_its_tails(sdk: openai.OpenAI) -> None:
    chance, messages, before = random.Random(11), [], 0
    for _ in range(16):
        messages.append({"role": "user", "content": said(chance)})
        text, whole, cached = ask(sdk, messages)
        assert cached == before
        if whole + 24 <= LIMIT:
            # Whoever wants the prompt's tokens back gets it read whole.
            plain = ask(sdk, messages, extra_body={"return_token_ids": True})
            assert plain == (text, whole, 0)
        messages.append({"role": "assistant", "content": text})
        before = whole
    assert before > LIMIT


@pytest.mark.long
def test_a_hundred_turns_are_those_with_reuse_off(
    nursery: EngineNursery, tiny_model: Path, tmp_path: Path
) -> None:
    chance, messages, before = random.Random(12), [], 0
    with contextlib.ExitStack() as stack:
        sdks = []
        for reuse in ("Memory", "Off"):
            fields = {"state__automaticReuse": reuse, "model__maxModelLen": LONG_LIMIT}
            server = nursery.pod(tmp_path / reuse, tiny_model, **fields)
            stack.callback(server.stop)
            server.wait_until_ready(300)
            sdks.append(stack.enter_context(client_of(server)))
        for _ in range(100):
            words = " ".join(said(chance) for _ in range(3))
            messages.append({"role": "user", "content": words[:TURN]})
            text, whole, cached = ask(sdks[0], messages)
            assert ask(sdks[1], messages) == (text, whole, 0)
            assert cached == before
            messages.append({"role": "assistant", "content": text})
            before = whole
    assert 4096 < before < LONG_LIMIT


def test_the_last_message_in_other_words_goes_on_from_the_turn_before(sdk: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "I am Ada, who are you?"}]
    text, first, _ = ask(sdk, messages)
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Well?"}]
    ask(sdk, messages)
    messages[-1] = {"role": "user", "content": "Who am I?"}
    assert ask(sdk, messages)[2] == first


def test_completions_go_on_from_shorter_ones(sdk: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": "chat", "max_tokens": 8, "temperature": 0}
    sdk.completions.create(prompt="Once upon a time", **options)
    longer = sdk.completions.create(prompt="Once upon a time there was a", **options)
    plain = sdk.completions.create(prompt="Once upon a time there was a", echo=True, **options)
    assert longer.usage is not None and longer.usage.prompt_tokens_details is not None
    assert longer.usage.prompt_tokens_details.cached_tokens == len("Once upon a time")
    assert plain.choices[0].text == "Once upon a time there was a" + longer.choices[0].text


def test_seeded_draws_are_those_without(sdk: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "Tell me of a city, any."}]
    options = {"seed": 5, "extra_body": {"ignore_eos": True}}
    sdk.chat.completions.create(model="chat", messages=messages, max_tokens=4)
    messages += [{"role": "assistant", "content": "Rome."}, {"role": "user", "content": "More."}]
    drawn = []
    for extra in ({}, {"return_token_ids": True}):
        body: dict[str, Any] = {"ignore_eos": True, **extra}
        answer = sdk.chat.completions.create(
            model="chat", messages=messages, max_tokens=24, seed=options["seed"], extra_body=body
        )
        drawn.append(answer.choices[0].message.content)
    assert drawn[0] == drawn[1]


def respond(sdk: openai.OpenAI, text: Any, **options: Any) -> Any:
    return sdk.responses.create(
        model="chat", input=text, max_output_tokens=24, temperature=0, **options
    )


def test_a_response_goes_on_from_the_one_before(sdk: openai.OpenAI) -> None:
    messages: list[Any] = []
    previous = None
    for text in ("My name is Nora.", "Tell me a joke.", "What is my name?"):
        messages.append({"role": "user", "content": text})
        answer = respond(sdk, text, previous_response_id=previous)
        wanted, whole, _ = ask(sdk, messages, extra_body={"return_token_ids": True})
        assert answer.output_text == wanted
        assert answer.previous_response_id == previous
        assert answer.usage.input_tokens <= whole
        messages.append({"role": "assistant", "content": wanted})
        previous = answer.id
    assert "Nora" in messages[-1]["content"]


def test_a_part_that_vllm_takes_for_no_text(sdk: openai.OpenAI) -> None:
    first = respond(sdk, "My name is Nora.")
    part = {"type": "input_text", "text": "What is my name?", "image_url": None}
    answers = [
        respond(sdk, said, previous_response_id=first.id)
        for said in ("What is my name?", [{"role": "user", "content": [part]}])
    ]
    assert answers[0].output_text == answers[1].output_text
    assert answers[0].usage.input_tokens == answers[1].usage.input_tokens


def test_a_streamed_response_is_kept_when_its_last_event_comes(sdk: openai.OpenAI) -> None:
    first = respond(sdk, "My name is Nora.")
    events = list(respond(sdk, "And yours?", previous_response_id=first.id, stream=True))
    assert [event.type for event in (events[0], events[-1])] == [
        "response.created",
        "response.completed",
    ]
    last = events[-1].response
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == last.output_text
    assert events[0].response.id == last.id
    kept = sdk.responses.retrieve(last.id)
    assert (kept.output_text, kept.previous_response_id) == (text, first.id)
    again = respond(sdk, "And yours?", previous_response_id=first.id)
    assert again.output_text == text
    sdk.responses.delete(last.id)
    with pytest.raises(openai.NotFoundError) as gone:
        sdk.responses.retrieve(last.id)
    assert gone.value.code == "state_not_found"


def test_a_client_that_resends_a_response_reads_its_tail(sdk: openai.OpenAI) -> None:
    # A beginning that no other test's prompt has.
    items: list[Any] = [{"role": "user", "content": "Ida is who I am."}]
    for turn in range(3):
        answer = respond(sdk, items, store=False)
        cached = answer.usage.input_tokens_details.cached_tokens
        assert (cached > 0) is (turn > 0)
        whole = respond(sdk, items, store=False, truncation="auto")
        assert whole.output_text == answer.output_text
        assert whole.usage.input_tokens == answer.usage.input_tokens
        items += [*(item.model_dump(exclude_none=True) for item in answer.output)]
        items.append({"role": "user", "content": "Who am I?"})

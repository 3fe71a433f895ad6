"""A World model behind the whole server, asked with OpenAI's own SDK.

Its weights are random, so texts that matter are forced on it by a grammar of one choice.
"""

from __future__ import annotations

import json
import shutil

import fla_to_pth
import openai
import pytest
import random_checkpoint
from server_process import KEY

USER = [{"role": "user", "content": "Hi"}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Köln", "Rom"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"name": "weather", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": WEATHER}]
CALL = '```json\n{"name": "weather", "arguments": {"city": "Köln"}}\n```'
FAMILY = "家庭 👩‍👩‍👧‍👦, ça va? हिन्दी 🏳️‍🌈 龘"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A .pth in official names and the configs of fla's format; no tokenizer of any kind."""
    source = tmp_path_factory.mktemp("fla") / "model"
    random_checkpoint.write_world_checkpoint(source, seed=3)
    folder = tmp_path_factory.mktemp("world")
    fla_to_pth.write_pth(source, folder / "RWKV-x070-World-random.pth")
    # An official checkpoint has a head of its own.
    config = json.loads((source / "config.json").read_text()) | {"tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(source / "generation_config.json", folder)
    return folder


@pytest.fixture(scope="module")
def server(nursery, model, tmp_path_factory):
    server = nursery.pod(tmp_path_factory.mktemp("pod"), model, engine__maxNumSeqs=4)
    try:
        server.wait_until_ready(400)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def sdk(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def no_white_space():
    """A bias against tokens of white space, which JSON may hold without end."""
    from rwkv_server.tokenizer import vocabulary

    tokens = vocabulary.read_tokens(vocabulary.find_file())
    return {str(number): -100 for number, token in tokens.items() if token.isspace()}


def forced(text, messages=USER, max_tokens=100, **options):
    template = options.pop("chat_template_kwargs", {})
    extra = {"structured_outputs": {"choice": [text]}, "chat_template_kwargs": template}
    return {
        "model": "chat", "messages": messages, "temperature": 0, "max_tokens": max_tokens,
        "extra_body": extra, **options,
    }  # fmt: skip


def streamed(chunks):
    """Words, calls and the last reason of a stream."""
    words, calls, reason = "", [], None
    for choice in (chunk.choices[0] for chunk in chunks if chunk.choices):
        words += choice.delta.content or ""
        calls += choice.delta.tool_calls or []
        reason = choice.finish_reason or reason
    return words, calls, reason


def test_the_end_of_flas_config_is_corrected(server):
    log = server.log.read_text()
    for name in ("config.json", "generation_config.json"):
        assert f"/{name}: eos_token_id is 2, World models end with 0: 0 is used" in log


def test_a_grammar_ends_with_token_0(sdk):
    choice = sdk.chat.completions.create(**forced("Fine.")).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Fine.", "stop")
    assert choice.stop_reason is None


def test_characters_of_several_tokens_stream_whole(sdk):
    whole = sdk.chat.completions.create(**forced(FAMILY))
    assert whole.choices[0].message.content == FAMILY
    chunks = sdk.chat.completions.create(**forced(FAMILY), stream=True)
    assert streamed(chunks)[0] == FAMILY


def test_a_limit_inside_a_character_cuts_it_off_either_way(sdk):
    family = "你 👩‍👧 龘"
    count = sdk.chat.completions.create(**forced(family)).usage.completion_tokens
    assert count > 12
    texts = []
    for limit in range(1, count):
        options = forced(family, max_tokens=limit)
        whole = sdk.chat.completions.create(**options).choices[0].message.content or ""
        words, _, reason = streamed(sdk.chat.completions.create(**options, stream=True))
        assert words == whole
        assert family.startswith(words)
        assert reason == "length"
        texts.append(words)
    # Some limits end inside a character, where nothing is added.
    assert len(set(texts)) < len(texts)


@pytest.mark.parametrize("turn", ["\n\nUser: And?", "\nUser: And?", "\n\nSystem: x"])
def test_another_speakers_turn_ends_the_reply(sdk, turn):
    choice = sdk.chat.completions.create(**forced("Hello." + turn)).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Hello.", "stop")
    words, _, reason = streamed(sdk.chat.completions.create(**forced("Hello." + turn), stream=True))
    assert (words, reason) == ("Hello.", "stop")


def test_stops_of_the_request_are_kept(sdk):
    for stop in ("ll", ["ll", "x"]):
        choice = sdk.chat.completions.create(**forced("Hello."), stop=stop).choices[0]
        assert (choice.message.content, choice.stop_reason) == ("He", "ll")


def test_completions_have_no_stops_but_their_own(sdk):
    extra = {"structured_outputs": {"choice": ["a\n\nUser: b"]}}
    options = {"model": "chat", "prompt": "User: Hi", "max_tokens": 20, "extra_body": extra}
    assert sdk.completions.create(**options).choices[0].text == "a\n\nUser: b"
    parts = sdk.completions.create(**options, stream=True)
    assert "".join(part.choices[0].text for part in parts) == "a\n\nUser: b"


def test_logprobs_of_bytes_and_text(sdk):
    options = forced(FAMILY, logprobs=True, top_logprobs=2)
    content = sdk.chat.completions.create(**options).choices[0].logprobs.content
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in content)
    told = sdk.completions.create(model="chat", prompt=FAMILY, max_tokens=1, echo=True, logprobs=1)
    assert told.choices[0].text.startswith(FAMILY)


def test_json_by_schema(sdk, no_white_space):
    schema = {"type": "json_schema", "json_schema": {"name": "place", "schema": PARAMETERS}}
    answer = sdk.chat.completions.create(
        model="chat", messages=USER, max_tokens=60, temperature=0, response_format=schema,
        logit_bias=no_white_space,
    )  # fmt: skip
    assert json.loads(answer.choices[0].message.content)["city"] in ("Köln", "Rom")


def arguments(call):
    return call.function.name, json.loads(call.function.arguments)


def test_a_fenced_answer_calls_a_tool(sdk):
    choice = sdk.chat.completions.create(**forced("I look.\n" + CALL, tools=TOOLS)).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    assert [arguments(call) for call in choice.message.tool_calls] == [
        ("weather", {"city": "Köln"})
    ]
    chunks = sdk.chat.completions.create(**forced("I look.\n" + CALL, tools=TOOLS), stream=True)
    words, calls, reason = streamed(chunks)
    assert (words, reason) == ("I look.", "tool_calls")
    assert [arguments(call) for call in calls] == [("weather", {"city": "Köln"})]
    assert calls[0].id


@pytest.mark.parametrize("options", [{}, {"tools": TOOLS, "tool_choice": "none"}])
def test_without_tools_the_same_answer_is_text(sdk, options):
    choice = sdk.chat.completions.create(**forced(CALL, **options)).choices[0]
    assert (choice.message.content, choice.message.tool_calls) == (CALL, None)
    assert streamed(sdk.chat.completions.create(**forced(CALL, **options), stream=True))[0] == CALL


def test_a_block_that_the_limit_cuts_is_text(sdk):
    options = forced(CALL, tools=TOOLS, max_tokens=8)
    whole = sdk.chat.completions.create(**options).choices[0].message.content
    assert CALL.startswith(whole) and len(whole) > 10
    assert streamed(sdk.chat.completions.create(**options, stream=True)) == (whole, [], "length")


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}]
)
def test_a_forced_call_is_one(sdk, no_white_space, choice):
    options = {
        "model": "chat", "messages": USER, "tools": TOOLS, "tool_choice": choice,
        "temperature": 0, "max_tokens": 60, "logit_bias": no_white_space,
    }  # fmt: skip
    (call,) = sdk.chat.completions.create(**options).choices[0].message.tool_calls
    name, given = arguments(call)
    assert name == "weather" and given["city"] in ("Köln", "Rom")
    _, calls, _ = streamed(sdk.chat.completions.create(**options, stream=True))
    assert [arguments(call) for call in calls] == [(name, given)]


def test_results_of_tools_go_back(sdk):
    call = {"id": "1", "type": "function",
            "function": {"name": "weather", "arguments": '{"city": "Köln"}'}}  # fmt: skip
    messages = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "21 degrees"},
    ]
    choice = sdk.chat.completions.create(**forced("Warm.", messages, tools=TOOLS)).choices[0]
    assert choice.message.content == "Warm."


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_call_and_its_result_by_state(sdk, stream):
    # In one line: vLLM 0.18 makes no grammar of a choice with several.
    asked = forced(CALL.splitlines()[1], tools=TOOLS)
    asked["extra_body"]["state"] = {"save": True}
    answer = sdk.chat.completions.create(**asked, stream=stream)
    if stream:
        *chunks, answer = answer
        _, calls, reason = streamed([*chunks, answer])
    else:
        calls, reason = answer.choices[0].message.tool_calls, answer.choices[0].finish_reason
    assert (reason, [arguments(call) for call in calls]) == (
        "tool_calls", [("weather", {"city": "Köln"})]
    )  # fmt: skip
    result = {"role": "tool", "tool_call_id": calls[0].id, "content": "21 degrees"}
    asked = forced("Warm.", [result], tools=TOOLS, logprobs=True)
    asked["extra_body"]["state"] = {"ref": answer.state["ref"]}
    warm = sdk.chat.completions.create(**asked)
    assert warm.choices[0].message.content == "Warm."
    assert "".join(one.token for one in warm.choices[0].logprobs.content).startswith("Warm.")
    assert warm.state["resumed"] and warm.usage.prompt_tokens < 30


def test_thinking_is_told_apart(sdk):
    options = {"model": "chat", "messages": USER, "max_tokens": 12, "temperature": 0}
    plain = sdk.chat.completions.create(**options)
    effort = sdk.chat.completions.create(**options, reasoning_effort="low")
    assert plain.choices[0].message.reasoning is None
    # The random model never ends its thought.
    assert effort.choices[0].message.content is None
    assert effort.choices[0].message.reasoning
    assert effort.usage.completion_tokens_details.reasoning_tokens == 12
    assert effort.usage.prompt_tokens > plain.usage.prompt_tokens
    off = sdk.chat.completions.create(
        **forced("No.", chat_template_kwargs={"enable_thinking": False})
    )
    assert off.choices[0].message.content == "No."
    assert off.usage.prompt_tokens > plain.usage.prompt_tokens


def test_responses(sdk, no_white_space):
    response = sdk.responses.create(model="chat", input="Hello", max_output_tokens=16)
    assert response.output_text
    extra = {"structured_outputs": {"choice": [FAMILY + "\n\nUser: x"]}}
    events = sdk.responses.create(model="chat", input="Hello", stream=True, extra_body=extra)
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(texts) == FAMILY
    called = sdk.responses.create(
        model="chat", input="Hello", tool_choice="required", max_output_tokens=60, temperature=0,
        tools=[{"type": "function", "strict": False, **WEATHER}],
        extra_body={"logit_bias": no_white_space},
    )  # fmt: skip
    (call,) = [item for item in called.output if item.type == "function_call"]
    assert call.name == "weather"
    assert json.loads(call.arguments)["city"] in ("Köln", "Rom")


def test_turns_fold_their_blank_lines(sdk):
    def count(text):
        message = [{"role": "user", "content": text}]
        return sdk.chat.completions.create(**forced("Ok", message)).usage.prompt_tokens

    assert count("a\n\n\nb\n") == count("a\nb")


@pytest.mark.parametrize("field", [False, {"type": "array", "uniqueItems": True}])
def test_a_schema_that_cannot_be_held_to_is_refused(sdk, field):
    weather = WEATHER | {"parameters": {"type": "object", "properties": {"x": field}}}
    with pytest.raises(openai.BadRequestError):
        sdk.chat.completions.create(
            model="chat",
            messages=USER,
            tools=[{"type": "function", "function": weather}],
            tool_choice="required",
        )


def test_half_a_surrogate_pair_is_refused_and_the_server_lives(server, sdk):
    body = b'{"model": "chat", "messages": [{"role": "user", "content": "\\ud800"}]}'
    headers = {"content-type": "application/json"}
    with server.client() as client:
        answer = client.post("/v1/chat/completions", content=body, headers=headers)
    assert answer.status_code == 400
    assert sdk.chat.completions.create(**forced("Ok")).choices[0].message.content == "Ok"


@pytest.mark.parametrize("thinks", [None, True, False], ids=["plain", "thinking", "not thinking"])
def test_each_turn_of_a_resent_chat_reads_its_own_tail(sdk, thinks):
    template = {} if thinks is None else {"enable_thinking": thinks}
    messages, before = [], 0
    for turn in range(4):
        messages.append({"role": "user", "content": f"Question {turn} ({thinks}): 是吗？"})
        asked = forced("是的。", list(messages), chat_template_kwargs=template)
        if thinks:
            asked["extra_body"] = {"chat_template_kwargs": template}
            asked["max_tokens"] = 12
        answer = sdk.chat.completions.create(**asked)
        asked["extra_body"]["return_token_ids"] = True  # is read whole
        whole = sdk.chat.completions.create(**asked)
        assert answer.choices[0].message.content == whole.choices[0].message.content
        assert answer.usage.prompt_tokens == whole.usage.prompt_tokens
        details = answer.usage.prompt_tokens_details
        cached = (details and details.cached_tokens) or 0
        # What passes at the end, " <think" or an empty thought, is at most nine tokens.
        if turn:
            assert before - 9 <= cached <= before
        messages.append({"role": "assistant", "content": "是的。"})
        before = answer.usage.prompt_tokens

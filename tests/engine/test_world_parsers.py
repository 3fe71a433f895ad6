"""The World parsers as vLLM composes them, fed token by token, without an engine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

CALL = '```json\n{"name": "weather", "arguments": {"city": "Köln"}}\n```'
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def vllm(tmp_path_factory):
    """A tokenizer, vLLM's parser of the plugin's two, and its request."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    from rwkv_server import plugin
    from rwkv_server.tokenizer.world import WorldTokenizer

    plugin.register()
    tokenizer = WorldTokenizer.from_pretrained(tmp_path_factory.mktemp("model"))
    parser = ParserManager.get_parser(
        tool_parser_name="rwkv", reasoning_parser_name="rwkv", enable_auto_tools=True,
        tokenizer=tokenizer,
    )  # fmt: skip
    return SimpleNamespace(tokenizer=tokenizer, parser=parser, request=ChatCompletionRequest)


def ask(vllm, thinking, **options):
    messages = [{"role": "user", "content": "Hi"}]
    request = vllm.request(model="chat", messages=messages, **options)
    template = {} if thinking is None else {"enable_thinking": thinking}
    parser = vllm.parser(vllm.tokenizer, request.tools, chat_template_kwargs=template)
    prompt = vllm.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False, **template
    )
    return request, parser, prompt


def whole(vllm, text, thinking, **options):
    request, parser, _ = ask(vllm, thinking, **options)
    thought, said, calls = parser.parse(text, request, enable_auto_tools=True)
    return thought, said, [(call.name, call.arguments) for call in calls or []]


def streamed(vllm, text, thinking, **options):
    request, parser, prompt = ask(vllm, thinking, **options)
    ids = vllm.tokenizer.encode(text)
    thought, said, calls = "", "", []
    for at, number in enumerate(ids):
        delta = parser.parse_delta(
            vllm.tokenizer.decode([number]), [number], request, prompt,
            finished=at + 1 == len(ids),
        )  # fmt: skip
        if delta is not None:
            thought += delta.reasoning or ""
            said += delta.content or ""
            calls += [(call.function.name, call.function.arguments) for call in delta.tool_calls]
    return thought or None, said or None, calls


@pytest.mark.parametrize(
    ("text", "thinking", "found"),
    [
        (" Hello. ", None, (None, "Hello. ", [])),
        (" <think> is a tag", None, (None, "<think> is a tag", [])),
        ("Hello.", False, (None, "Hello.", [])),
        (">\nHm, hm.\n</think>\n\nHello.", True, ("Hm, hm.", "Hello.", [])),
        (">Hm</think>" + CALL, True, ("Hm", None, [("weather", '{"city": "Köln"}')])),
        (">\nHm", True, ("Hm", None, [])),
        (CALL, None, (None, None, [("weather", '{"city": "Köln"}')])),
        (CALL + "\n" + CALL, False, (None, None, [("weather", '{"city": "Köln"}')] * 2)),
    ],
)
def test_whole_and_streamed_replies_are_read_alike(vllm, text, thinking, found):
    assert whole(vllm, text, thinking, tools=[TOOL]) == found
    assert streamed(vllm, text, thinking, tools=[TOOL]) == found


def test_the_end_of_a_thought_is_seen_in_tokens(vllm):
    _, parser, prompt = ask(vllm, True)
    reasoning, encode = parser.reasoning_parser, vllm.tokenizer.encode
    assert not reasoning.is_reasoning_end(prompt)
    assert reasoning.is_reasoning_end(ask(vllm, False)[2])
    assert reasoning.is_reasoning_end(ask(vllm, None)[2])
    ids = encode(">\nHm.\n</think>\nHello.")
    ends = [n for n in range(1, len(ids) + 1) if reasoning.is_reasoning_end_streaming(
        prompt + ids[:n], ids[n - 1 : n])]  # fmt: skip
    assert len(ends) == 1
    assert vllm.tokenizer.decode(ids[: ends[0]]).endswith("</think>")
    assert vllm.tokenizer.decode(reasoning.extract_content_ids(ids)) == "\nHello."
    assert reasoning.extract_content_ids(ids[: ends[0] - 1]) == []
    assert reasoning.count_reasoning_tokens(ids) == ends[0]
    assert reasoning.count_reasoning_tokens(ids[:3]) == 3
    assert ask(vllm, None)[1].count_reasoning_tokens(ids) == 0


def test_stops_are_added_to_the_requests(vllm):
    request, parser, _ = ask(vllm, None, stop=["x", "\nUser:"])
    assert parser.adjust_request(request).stop == ["x", "\nUser:", "\n\nUser:", "\n\nSystem:"]
    request, parser, _ = ask(vllm, None, stop="x")
    assert parser.adjust_request(request).stop[0] == "x"
    request, parser, _ = ask(vllm, None, ignore_eos=True)
    assert parser.adjust_request(request).stop == []


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", ["weather", "time"]),
        ({"type": "function", "function": {"name": "time"}}, ["time"]),
    ],
)
def test_a_forced_call_has_a_schema(vllm, choice, names):
    time = {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}
    request, parser, _ = ask(vllm, None, tools=[TOOL, time], tool_choice=choice)
    schema = parser.adjust_request(request).structured_outputs.json
    calls = schema.get("anyOf", [schema])
    assert [call["properties"]["name"]["const"] for call in calls] == names


def test_schemas_of_forced_calls_keep_their_references(vllm):
    """As pydantic writes them; two tools have different definitions of one name."""
    import xgrammar

    def tool(name, kind):
        part = {"type": "object", "properties": {"x": {"type": kind}}, "required": ["x"]}
        parameters = {
            "type": "object",
            "properties": {"part": {"$ref": "#/$defs/Part"}, "again": {"$ref": "#"}},
            "required": ["part"],
            "$defs": {"Part": part},
        }
        return {"type": "function", "function": {"name": name, "parameters": parameters}}

    tools = [tool("count", "integer"), tool("check", "boolean")]
    letters = xgrammar.TokenizerInfo([chr(code) for code in range(32, 127)])
    for offered in (tools[:1], tools):
        request, parser, _ = ask(vllm, None, tools=offered, tool_choice="required")
        schema = parser.adjust_request(request).structured_outputs.json
        grammar = xgrammar.GrammarCompiler(letters).compile_json_schema(schema)
        for arguments, fits in (
            ('{"part": {"x": 1}, "again": {"part": {"x": 2}}}', True),
            ('{"part": {"x": true}}', False),
        ):
            call = f'{{"name": "count", "arguments": {arguments}}}'
            assert xgrammar.GrammarMatcher(grammar).accept_string(call) is fits

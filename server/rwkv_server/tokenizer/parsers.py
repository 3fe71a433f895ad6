"""What vLLM asks about replies of World models: `--reasoning-parser rwkv --tool-call-parser rwkv`.

Adapters only: `replies` knows the format, `vllm_chat_compat` which classes of vLLM to fill.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from vllm.reasoning import ReasoningParser
from vllm.tool_parsers.abstract_tool_parser import ToolParser

from rwkv_server import vllm_chat_compat
from rwkv_server.tokenizer import replies

OPEN = "<think"
# Tokens that are sure to hold the tags looked for.
_TAIL = 12


class RWKVReasoningParser(ReasoningParser):
    """Splits thinking from the reply where the prompt asked for thinking."""

    # vLLM then asks this object how far it is, tells it the end, and never repeats text.
    engine_based_streaming = True

    def __init__(self, tokenizer: Any, *args: Any, **options: Any) -> None:
        """One for each request; `chat_template_kwargs` says whether the prompt asked."""
        super().__init__(tokenizer, *args, **options)
        self._asked = options.get("chat_template_kwargs") or {}
        self._thinking = replies.Thinking()
        self._reading = False

    def adjust_request(self, request: Any) -> Any:
        """Add the stops of the format, unless the request wants no end."""
        if not request.ignore_eos:
            own = [request.stop] if isinstance(request.stop, str) else list(request.stop or [])
            request.stop = own + [stop for stop in replies.STOPS if stop not in own]
        return request

    def is_reasoning_end(self, input_ids: Sequence[int]) -> bool:
        """Whether these tokens, a prompt or what was read so far, don't end inside a thought."""
        if self._reading:
            return self._thinking.ended
        text = self._decode(input_ids[-_TAIL:])
        return not text.endswith(OPEN)

    def is_reasoning_end_streaming(
        self, input_ids: Sequence[int], delta_ids: Iterable[int]
    ) -> bool:
        """Whether the thought ends in the last tokens."""
        new = len(list(delta_ids))
        before = self._decode(input_ids[-new - _TAIL : len(input_ids) - new])
        after = self._decode(input_ids[-new - _TAIL :])
        return after.count(replies.THINK_END) > before.count(replies.THINK_END)

    def extract_content_ids(self, input_ids: list[int]) -> list[int]:
        """The tokens after the thought."""
        counts = range(len(input_ids) + 1)
        return input_ids[bisect_left(counts, True, key=lambda n: self._ends(input_ids[:n])) :]

    def count_reasoning_tokens(self, token_ids: Sequence[int]) -> int:
        """Tokens up to the end of the thought, for the request's usage."""
        if not self._asked.get("enable_thinking"):
            return 0
        return len(token_ids) - len(self.extract_content_ids(list(token_ids)))

    def extract_reasoning(self, model_output: str, request: Any) -> tuple[str | None, str | None]:
        """Thought and words of a whole reply."""
        if not self._asked.get("enable_thinking"):
            return None, model_output
        thinking = replies.Thinking()
        thought, said = thinking.feed(model_output)
        return (thought + thinking.finish()) or None, said or None

    def extract_reasoning_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
    ) -> Any:
        """What the next piece adds."""
        self._reading = True
        thought, said = self._thinking.feed(delta_text)
        return vllm_chat_compat.delta_message(reasoning=thought, content=said)

    def has_engine_confirmed_reasoning_end(self) -> bool:
        """Whether the closing tag was seen."""
        return self._thinking.ended

    def finish_streaming(self) -> Any:
        """What was held back."""
        return vllm_chat_compat.delta_message(reasoning=self._thinking.finish())

    def _ends(self, ids: Sequence[int]) -> bool:
        return replies.THINK_END in self._decode(ids)

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.model_tokenizer.decode(list(ids)))


class RWKVToolParser(ToolParser):
    """Finds the calls of tools in a reply."""

    engine_based_streaming = True
    # A forced call has the format of any other, by the schema below.
    supports_required_and_named = False

    def __init__(self, tokenizer: Any, *args: Any) -> None:
        """One for each request."""
        super().__init__(tokenizer, *args)
        self._calls: replies.Calls | None = None

    def adjust_request(self, request: Any) -> Any:
        """Hold the reply to a call where the request forces one."""
        choice = request.tool_choice
        if not request.tools or choice in (None, "none", "auto"):
            return request
        named = getattr(getattr(choice, "function", choice), "name", None)
        tools = [tool for tool in _tools(request) if named in (None, tool.name)]
        return vllm_chat_compat.force_json(request, call_schema(tools))

    def extract_tool_calls(self, model_output: str, request: Any) -> Any:
        """Words and calls of a whole reply."""
        reader = replies.Calls(_offered(request))
        items = reader.feed(model_output) + reader.finish()
        words = "".join(item for item in items if isinstance(item, str))
        calls = [item for item in items if isinstance(item, replies.Call)]
        return vllm_chat_compat.tool_calls(words or None, [(c.name, c.arguments) for c in calls])

    def extract_tool_calls_streaming(
        self,
        previous_text: str,
        current_text: str,
        delta_text: str,
        previous_token_ids: Sequence[int],
        current_token_ids: Sequence[int],
        delta_token_ids: Sequence[int],
        request: Any,
    ) -> Any:
        """What the next piece adds."""
        if self._calls is None:
            self._calls = replies.Calls(_offered(request))
        return self._message(self._calls.feed(delta_text))

    def finish_streaming(self) -> Any:
        """What was held back."""
        return None if self._calls is None else self._message(self._calls.finish())

    def _message(self, items: list[str | replies.Call]) -> Any:
        words, calls = "", []
        for item in items:
            if isinstance(item, str):
                words += item
                continue
            calls.append((len(self.prev_tool_call_arr), item.name, item.arguments))
            # vLLM reads these to tell why the reply ended, and what it still owes.
            self.prev_tool_call_arr.append({"name": item.name, "arguments": item.arguments})
            self.streamed_args_for_tool.append(item.arguments)
        return vllm_chat_compat.delta_message(content=words, calls=calls)


def call_schema(tools: Sequence[Any]) -> dict[str, Any]:
    """The JSON schema of a call of one of `tools`.

    Each tool's parameters are a schema with references into itself, and find themselves in here.
    """
    calls, parameters = [], {}
    for number, tool in enumerate(tools):
        place = f"#/$defs/{number}"
        parameters[str(number)] = _move(tool.parameters or {"type": "object"}, place)
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": {"$ref": place}},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    return {**(calls[0] if len(calls) == 1 else {"anyOf": calls}), "$defs": parameters}


def _move(schema: Any, place: str) -> Any:
    """A JSON schema whose root is at `place` from now on."""
    if isinstance(schema, list):
        return [_move(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _move(value, place) for key, value in schema.items()}
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        moved["$ref"] = place + reference[1:]
    return moved


def _offered(request: Any) -> list[str]:
    """Names of the tools that may be called."""
    return [] if request.tool_choice == "none" else [tool.name for tool in _tools(request)]


def _tools(request: Any) -> list[Any]:
    """The request's functions: chats wrap them, responses don't."""
    tools = [getattr(tool, "function", None) or tool for tool in request.tools or []]
    return [tool for tool in tools if hasattr(tool, "name") and hasattr(tool, "parameters")]

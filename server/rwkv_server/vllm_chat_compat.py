"""The chat half of `vllm_compat`: what differs between versions in front of the engine.

Apart from it because engine and workers need none of this. Written for 0.18 and 0.32.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any


def register_chat(
    name: str, *, tokenizer: str, renderer: str, tool_parser: str, reasoning_parser: str
) -> None:
    """Make a tokenizer mode and two parsers known as `name`; each is `module.Class`."""
    from vllm.reasoning import ReasoningParserManager
    from vllm.renderers.registry import RENDERER_REGISTRY
    from vllm.tokenizers.registry import TokenizerRegistry
    from vllm.tool_parsers import ToolParserManager

    if name in TokenizerRegistry.tokenizers:
        return
    TokenizerRegistry.register(name, *_module_and_class(tokenizer))
    RENDERER_REGISTRY.register(name, *_module_and_class(renderer))
    ToolParserManager.register_lazy_module(name, *_module_and_class(tool_parser))
    ReasoningParserManager.register_lazy_module(name, *_module_and_class(reasoning_parser))


def _module_and_class(path: str) -> tuple[str, str]:
    module, _, name = path.rpartition(".")
    return module, name


def _chat_protocol() -> Any:
    """The module of a reply's parts; it moved after 0.18."""
    for name in ("generate.base.protocol", "openai.engine.protocol"):
        path = f"vllm.entrypoints.{name}"
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if not path.startswith(str(error.name)):
                raise
    raise ImportError("vLLM has no module with DeltaMessage where it is looked for")


def delta_message(
    reasoning: str = "", content: str = "", calls: Sequence[tuple[int, str, str]] = ()
) -> Any:
    """A piece of a streamed reply, None if it is empty; calls are (index, name, arguments)."""
    protocol = _chat_protocol()
    if not (reasoning or content or calls):
        return None
    message = protocol.DeltaMessage(reasoning=reasoning or None, content=content or None)
    message.tool_calls = [
        protocol.DeltaToolCall(
            id=protocol.ToolCall(function=function).id,
            type="function",
            index=index,
            function=protocol.DeltaFunctionCall(name=function.name, arguments=function.arguments),
        )
        for index, name, arguments in calls
        for function in [protocol.FunctionCall(name=name, arguments=arguments)]
    ]
    return message


def tool_calls(content: str | None, calls: Sequence[tuple[str, str]]) -> Any:
    """A whole reply's words and its calls, (name, arguments) each."""
    protocol = _chat_protocol()
    parsed = [
        protocol.ToolCall(function=protocol.FunctionCall(name=name, arguments=arguments))
        for name, arguments in calls
    ]
    return protocol.ExtractedToolCallInformation(
        tools_called=bool(parsed), tool_calls=parsed, content=content
    )


def force_json(request: Any, schema: dict[str, Any]) -> Any:
    """Hold the reply to a request, a chat's or a response's, to a JSON schema."""
    from vllm.sampling_params import StructuredOutputsParams

    request.structured_outputs = StructuredOutputsParams(json=schema)
    for field in ("response_format", "text"):
        if hasattr(request, field):
            setattr(request, field, None)
    return request

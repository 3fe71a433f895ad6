"""The chat half of `vllm_compat`: what differs between versions in front of the engine.

Apart from it because engine and workers need none of this. Written for 0.18 and 0.32.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Where later versions render what comes in over HTTP, and what there takes tokens for messages.
_ONLINE, _TAKES = "vllm.renderers.online_renderer", "_reused_prompt_token_ids"
# How 0.18 calls the renderer of tokenizers that are transformers' own.
_PLAIN_RENDERER = "hf"


@dataclass
class Carried:
    """Tokens that stand for the messages of one chat.

    Attributes:
        taken: whether a renderer has given them to the engine.
        over: whether that chat was answered; whoever has its context after it has another's.
    """

    tokens: Sequence[int]
    taken: bool = False
    over: bool = False


_carried: contextvars.ContextVar[Carried | None] = contextvars.ContextVar(
    "rwkv_carried", default=None
)


@contextlib.contextmanager
def carry(tokens: Sequence[int]) -> Iterator[Carried]:
    """Let tokens stand for the messages of the chat that is asked for in this context."""
    carried = Carried(tokens)
    before = _carried.set(carried)
    try:
        yield carried
    finally:
        carried.over = True
        _carried.reset(before)


def carry_nothing() -> None:
    """Begin a client's request: its context may be a copy of one in which tokens are carried."""
    _carried.set(None)


def take_carried() -> list[int] | None:
    """The tokens that stand for the messages to be rendered, if there are any."""
    carried = _carried.get()
    if carried is None or carried.over:
        return None
    carried.taken = True
    return list(carried.tokens)


@dataclass(frozen=True)
class ChatRoutes:
    """What vLLM's routes for chats and Responses can; its versions differ there.

    Attributes:
        take_tokens: whether tokens may stand in `kv_transfer_params` for messages, a Response has
            that field, and a reasoning effort switches thinking. 0.18 has none of it.
    """

    take_tokens: bool

    def hand_over(
        self,
        body: Mapping[str, Any],
        params: Mapping[str, Any],
        tokens: list[int],
        *,
        response: bool = False,
    ) -> tuple[dict[str, Any], list[int] | None]:
        """The way of a framed chat or Response: its body, and tokens to `carry` beside that.

        Args:
            body: with something that stands for messages or input.
            params: the connector's, signed; texts by name.
            tokens: the whole prompt.
            response: whether it's a Response.
        """
        if self.take_tokens:
            return {**body, "kv_transfer_params": {**params, "prompt_token_ids": tokens}}, None
        if not response:
            return {**body, "kv_transfer_params": dict(params)}, tokens
        # The connector finds them among these: `states.connector.compat.find_params`.
        given = body.get("vllm_xargs") or {}
        arguments = {**given, **params} if isinstance(given, Mapping) else given
        return {**body, "vllm_xargs": arguments}, tokens

    def template_request(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """A chat request whose reasoning effort tells the template what vLLM's route tells it."""
        if self.take_tokens or request.get("reasoning_effort") is None:
            return request
        given = request.get("chat_template_kwargs")
        arguments = dict(given) if isinstance(given, Mapping) else {}
        arguments["reasoning_effort"] = request["reasoning_effort"]
        return {**request, "reasoning_effort": None, "chat_template_kwargs": arguments}


def find_routes() -> ChatRoutes:
    """What this vLLM's routes can."""
    try:
        return ChatRoutes(hasattr(importlib.import_module(_ONLINE), _TAKES))
    except ImportError:
        return ChatRoutes(take_tokens=False)


def register_renderer(path: str) -> None:
    """Let a renderer that takes carried tokens stand for vLLM's plain one, where chats need it."""
    from vllm.renderers.registry import RENDERER_REGISTRY

    # Asked without an import: that takes seconds, and the engine's process never needs it.
    if importlib.util.find_spec(_ONLINE) is not None:
        return
    own = _module_and_class(path)
    if RENDERER_REGISTRY.renderers.get(_PLAIN_RENDERER) != own:
        RENDERER_REGISTRY.register(_PLAIN_RENDERER, *own)


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

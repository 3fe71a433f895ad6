"""Tokens of texts and texts of tokens, by vLLM's own routes `/tokenize` and `/detokenize`.

They render chats as the route that generates does, with the model's own template.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.types import ASGIApp, Scope

from rwkv_server.states.errors import StateUnsupportedOption
from rwkv_server.states.record import Record
from rwkv_server.states.web import inner

# Fields that vLLM hands to a chat's template, beside what `chat_template_kwargs` has.
_TEMPLATE = ("documents", "reasoning_effort")
_TOKENS = 1 << 32
# Messages that a chat begins with, and what comes before those of other roles.
_OPENING = ("system", "developer")
_ASKED = {"role": "user", "content": "-"}
_BEFORE = {
    "assistant": (_ASKED,),
    "tool": (_ASKED, {"role": "assistant", "content": "-"}),
}
_PASSED = ("model", "tools", "chat_template", "add_special_tokens", "mm_processor_kwargs")


class Text:
    """One client's access to the tokenizer."""

    def __init__(self, app: ASGIApp, scope: Scope, model: str | None) -> None:
        """Ask through `app`, as the client whose request `scope` is."""
        self._app, self._scope, self._model = app, scope, model

    async def encode(self, text: str, special: bool) -> list[int]:
        """The tokens of a text, with a beginning-of-text token if `special` and there is one."""
        if not text:
            return []
        return await self._tokenize({"prompt": text, "add_special_tokens": special})

    async def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        if not tokens:
            return ""
        asked = {"model": self._model, "tokens": list(tokens)}
        answer = await inner.ask(self._app, self._scope, "/detokenize", asked)
        return str(answer["prompt"])

    async def render(self, request: Mapping[str, Any], messages: Sequence[Any]) -> list[int]:
        """The tokens of a chat, as `request` would have them rendered."""
        asked = {name: request[name] for name in _PASSED if request.get(name) is not None}
        asked["messages"] = list(messages)
        asked["add_generation_prompt"] = request.get("add_generation_prompt", True)
        asked["chat_template_kwargs"] = _template_arguments(request)
        return await self._tokenize(asked)

    async def bridge(self, request: Mapping[str, Any], role: str) -> list[int]:
        """What of a longer chat comes after the text of its last message.

        That is the end of that turn, and the new messages. A made-up message of that `role` stands
        for what the state has read; its text is found again in the rendering, and what comes after
        it is the new text.
        """
        mark = "m" + secrets.token_hex(12)
        if role in _OPENING:
            # Templates tell of tools behind the chat's first words, which the state has read.
            request = {name: value for name, value in request.items() if name != "tools"}
        before = [*_BEFORE.get(role, ()), {"role": role, "content": mark}]
        rendered = await self.render(request, [*before, *request["messages"]])
        _, found, after = (await self.decode(rendered)).partition(mark)
        if not found or mark in after:
            raise StateUnsupportedOption(
                "the model's chat template doesn't show messages as they are, so no chat can go "
                "on from a state: use /v1/completions",
                param="messages",
            )
        return await self.encode(after, special=False)

    async def _tokenize(self, asked: Mapping[str, Any]) -> list[int]:
        content = {"model": self._model, **asked}
        answer = await inner.ask(self._app, self._scope, "/tokenize", content)
        return list(answer["tokens"])


def last_role(record: Record) -> str | None:
    """Whose message the state's text ends with, which a chat's next turn has to close; or None."""
    if record.last_role is not None:
        return record.last_role
    if record.finish_reason == "import":
        return "assistant" if record.text_tokens > 0 else None
    return None if record.finish_reason in ("prompt", "initial") else "assistant"


async def chat_tokens(text: Text, request: Mapping[str, Any], record: Record | None) -> list[int]:
    """The new text of a chat.

    Raises:
        StateUnsupportedOption: there is none.
    """
    if not isinstance(request.get("messages"), list):
        raise StateUnsupportedOption("messages: wanted a list", param="messages")
    role = None if record is None else last_role(record)
    if role is not None:
        return await text.bridge(request, role)
    return await text.render(request, request["messages"])


async def completion_tokens(
    text: Text, request: Mapping[str, Any], record: Record | None
) -> list[int]:
    """The new text of a completion.

    Raises:
        StateUnsupportedOption: it has several prompts, or none.
    """
    prompt = request.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, str):
        special = request.get("add_special_tokens", True) is not False
        return await text.encode(prompt, special and record is None)
    if isinstance(prompt, list) and all(_is_token(token) for token in prompt):
        return prompt
    raise StateUnsupportedOption(
        "prompt: wanted one text or one list of tokens together with a state", param="prompt"
    )


def _is_token(value: Any) -> bool:
    """Whether it can be one; which tokens there are is vLLM's to say."""
    return type(value) is int and 0 <= value < _TOKENS


def _template_arguments(request: Mapping[str, Any]) -> dict[str, Any]:
    given = request.get("chat_template_kwargs")
    arguments = dict(given) if isinstance(given, Mapping) else {}
    effort = request.get("reasoning_effort")
    if effort is not None and "enable_thinking" not in arguments:
        arguments["enable_thinking"] = effort != "none"
    for name in _TEMPLATE:
        if request.get(name) is not None:
            arguments.setdefault(name, request[name])
    return arguments

"""The input of a Response as the messages of a chat, as vLLM itself reads it. Pure.

vLLM turns a Response into a chat inside its own route, where nobody sees the tokens. Whoever wants
those before asks for the chat made here. What isn't sure to come out the same is no chat: None.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

Message = dict[str, Any]

# Fields that add to the prompt what no chat has.
_OTHER_WAYS = ("prompt", "previous_input_messages")
_TEXT_PARTS = ("text", "input_text", "output_text")
_UNFINISHED = ("in_progress", "incomplete")


def read_chat(body: Mapping[str, Any], arguments: bool = True) -> dict[str, Any] | None:
    """A chat request with the same prompt: model, messages, tools, the template's arguments.

    Tools are told to the model as a chat tells them, which vLLM's own Responses word otherwise.

    Args:
        body: the request.
        arguments: whether it can have arguments for the template, and its effort switches thinking;
            vLLM 0.18 only tells the template of the effort.
    """
    if any(body.get(field) for field in _OTHER_WAYS):
        return None
    messages, tools = read_messages(body.get("input")), _tools(body.get("tools"))
    if messages is None or tools is None:
        return None
    instructions = body.get("instructions")
    if instructions:
        messages.insert(0, {"role": "system", "content": instructions})
    chat = {
        "model": body.get("model"),
        "messages": messages,
        "chat_template_kwargs": _arguments(body) if arguments else _effort(body),
    }
    return {**chat, "tools": tools} if tools else chat


def is_plain(body: Mapping[str, Any]) -> bool:
    """Whether vLLM 0.18 reads an input as later versions do.

    It is so where each item is a message and a turn by itself: 0.18 joins no items, and takes all
    parts of what the assistant said.
    """
    content = body.get("input")
    if not isinstance(content, list):
        return True
    said = [item.get("role") == "assistant" for item in content if _is_said(item)]
    return len(said) == len(content) and not any(map(all, itertools.pairwise(said)))


def _is_said(item: Any) -> bool:
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        return False
    parts = item.get("content")
    return item.get("role") != "assistant" or not isinstance(parts, list) or len(parts) == 1


def read_messages(content: Any) -> list[Message] | None:
    """The messages that an `input` holds."""
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    if not isinstance(content, list) or not content:
        return None
    messages: list[Message] = []
    for item in content:
        message = _message(item)
        if message is None:
            return None
        if not _join(messages, message):
            messages.append(message)
    return None if content[-1].get("status") in _UNFINISHED else messages


def _tools(content: Any) -> list[dict[str, Any]] | None:
    if not content:
        return []
    if not isinstance(content, list):
        return None
    tools = []
    for tool in content:
        if not isinstance(tool, dict) or tool.get("type") != "function":
            return None
        function = {name: value for name, value in tool.items() if name != "type"}
        tools.append({"type": "function", "function": function})
    return tools


def _arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    own = body.get("chat_template_kwargs")
    arguments = dict(own) if isinstance(own, dict) else {}
    told = _effort(body)
    if told:
        arguments.setdefault("enable_thinking", told["reasoning_effort"] != "none")
    return arguments | told


def _effort(body: Mapping[str, Any]) -> dict[str, Any]:
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    return {} if effort is None else {"reasoning_effort": effort}


def _message(item: Any) -> Message | None:
    """One item by itself."""
    if not isinstance(item, dict):
        return None
    kind = item.get("type", "message")
    if kind == "message":
        return _said(item)
    if kind == "function_call":
        return _call(item)
    if kind == "function_call_output" and isinstance(item.get("output"), str):
        return {"role": "tool", "content": item["output"], "tool_call_id": item.get("call_id")}
    if kind == "reasoning" and not item.get("encrypted_content"):
        return _thought(item)
    return None


def _thought(item: Mapping[str, Any]) -> Message | None:
    for parts in (item.get("content"), item.get("summary")):
        if isinstance(parts, list) and parts:
            text = parts[0].get("text") if isinstance(parts[0], dict) else None
            return {"role": "assistant", "reasoning": text} if isinstance(text, str) else None
    return {"role": "assistant", "reasoning": ""}


def _said(item: Mapping[str, Any]) -> Message | None:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str):
        return None
    if isinstance(content, str):
        return {"role": role, "content": content}
    if not isinstance(content, list) or not content:
        return None
    texts = [_text(part) for part in content]
    if None in texts:
        return None
    if role == "assistant":
        return {"role": role, "content": texts[0]}
    return {"role": role, "content": [{"type": "text", "text": text} for text in texts]}


def _text(part: Any) -> str | None:
    if isinstance(part, dict) and part.get("type") in _TEXT_PARTS:
        text = part.get("text")
        return text if isinstance(text, str) else None
    return None


def _call(item: Mapping[str, Any]) -> Message | None:
    name, arguments = item.get("name"), item.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, str) or item.get("namespace"):
        return None
    function = {"name": name, "arguments": arguments}
    call = {"id": item.get("call_id"), "type": "function", "function": function}
    return {"role": "assistant", "tool_calls": [call]}


def _join(messages: list[Message], message: Message) -> bool:
    """Add to the message before what belongs to the same turn of the assistant's."""
    before = messages[-1] if messages else None
    if before is None or before["role"] != "assistant" or message["role"] != "assistant":
        return False
    if "tool_calls" in message:
        before.setdefault("tool_calls", []).extend(message["tool_calls"])
        return True
    for part in ("reasoning", "content"):
        if part in message and part not in before:
            before[part] = message[part]
            return True
    return False

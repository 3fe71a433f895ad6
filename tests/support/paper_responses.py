"""The Responses route of the engine on paper, as vLLM's answers: whole or as events."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.types import Send

from rwkv_server.states.web import response_input


def chat_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages that vLLM makes of a request's input."""
    chat = response_input.read_chat({**body, "tools": []})
    assert chat is not None
    return list(chat["messages"])


async def answer(
    body: Mapping[str, Any], send: Send, prompt: Sequence[int], text: str, tokens: int, full: bool
) -> None:
    """Send the answer; `full` says that the text ended by its length."""
    assert not body.get("store") and "previous_response_id" not in body
    message = {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    response = {
        "id": body.get("request_id", "resp_of_vllm"),
        "object": "response",
        "status": "in_progress",
        "output": [],
        "previous_response_id": None,
        "usage": None,
        "kv_transfer_params": None,
    }
    usage = {
        "input_tokens": len(prompt),
        "output_tokens": tokens,
        "total_tokens": len(prompt) + tokens,
        "input_tokens_details": {"cached_tokens": 0},
    }
    status = "incomplete" if full else "completed"
    done = {**response, "status": status, "output": [message], "usage": usage}
    if not body.get("stream"):
        content = json.dumps(done).encode()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content, "more_body": False})
        return
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for kind in ("response.created", "response.in_progress"):
        await _event(send, {"type": kind, "response": response})
    for piece in re.findall(r"(?s).{1,3}", text):
        await _event(send, {"type": "response.output_text.delta", "delta": piece})
    await _event(send, {"type": "response.completed", "response": done})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _event(send: Send, content: Mapping[str, Any]) -> None:
    data = f"event: {content['type']}\ndata: {json.dumps(content)}\n\n".encode()
    await send({"type": "http.response.body", "body": data, "more_body": True})

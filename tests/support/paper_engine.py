"""An app with vLLM's routes over a model on paper: a state is a number, and a token one step of it.

It reads and writes slots as the connector does, tells the ends of requests, and can read ahead as
asynchronous scheduling does. Answers depend on every token before, so one that is lost or read
twice shows.
"""

from __future__ import annotations

import asyncio
import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send

from rwkv_server.model.config import RWKV7Config
from rwkv_server.states.connector.params import Transfer, verify
from rwkv_server.states.events import Ended
from rwkv_server.states.hot import HotTier
from rwkv_server.states.layout import StateLayout

KEY = b"k" * 32
END, PLACEHOLDER, VOCABULARY = 0, 319, 320
CONFIG = RWKV7Config(VOCABULARY, 64, 1, 64, 64, 8, 8, 8, 8, 1e-5, False)
LAYOUT = StateLayout.of(CONFIG, "float32")

# Tokens of more than one letter, so that stops can begin inside one.
_LONG = [b"User:", b"\n\n", b".\n", b"ab", b"lo."]
_TOKENS = {256 + at: text for at, text in enumerate(_LONG)}
_LETTERS = b"abcdefghij klm.\n"


def encode(text: str) -> list[int]:
    """Greedy, the longest first; a byte's token is its number."""
    left, tokens = text.encode(), []
    while left:
        found = next((n for n, long in _TOKENS.items() if left.startswith(long)), left[0])
        tokens.append(found)
        left = left[len(_TOKENS.get(found, b"x")) :]
    return tokens


def decode(tokens: Sequence[int]) -> str:
    """As tokenizers do: broken letters are replaced, the end has a name."""
    parts = [_TOKENS.get(token, bytes([token % 256])) if token else b"<end>" for token in tokens]
    return b"".join(parts).decode("utf-8", "replace")


def render(messages: Sequence[dict[str, Any]], prompt: bool) -> str:
    """The chat template."""
    names = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}
    turns = [f"{names[m['role']]}: {m['content']}" for m in messages]
    return "\n\n".join(turns) + ("\n\nAssistant:" if prompt else "")


def step(state: int, token: int) -> int:
    """The state after one more token."""
    return (state * 6364136223846793005 + token * 2 + 1) % (1 << 64)


def read(tokens: Sequence[int], state: int = 0) -> int:
    """The state after all of these."""
    for token in tokens:
        state = step(state, token)
    return state


def choose(state: int) -> int:
    """The next token."""
    return _LETTERS[(state >> 33) % len(_LETTERS)]


@dataclass
class PaperEngine:
    """The app.

    Attributes:
        ahead: whether a token is read before it's known that the one before was the last.
        seen: bodies of requests to generate.
        gate: generation waits for it, before its first token.
    """

    hot: HotTier
    ahead: bool = False
    limit: int = 10_000
    seen: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    gate: asyncio.Event | None = None
    _events: dict[str, asyncio.Future[Ended]] = field(default_factory=dict)

    def expect(self, request: str) -> None:
        self._events[request] = asyncio.get_running_loop().create_future()

    def forget(self, request: str) -> None:
        self._events.pop(request, None)

    async def ended(self, request: str, timeout_s: float) -> Ended:
        return await asyncio.wait_for(self._events.pop(request), 5)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = json.loads((await receive())["body"])
        path = scope["path"]
        self.asked.append(path)
        if path == "/tokenize":
            text = body.get("prompt")
            if text is None:
                text = render(body["messages"], body["add_generation_prompt"])
            await _json(send, 200, {"tokens": encode(text)})
        elif path == "/detokenize":
            await _json(send, 200, {"prompt": decode(body["tokens"])})
        else:
            self.seen.append(body)
            await self._generate(path, body, receive, send)

    async def _generate(self, path: str, body: dict[str, Any], receive: Any, send: Send) -> None:
        params = body.get("kv_transfer_params")
        prompt = self._prompt(path, body, params)
        if len(prompt) > self.limit:
            await _json(send, 400, {"error": {"message": "too long", "code": 400}})
            return
        if self.gate is not None:
            await self.gate.wait()
        transfer = Transfer("none") if params is None else verify(params, KEY)
        output, status, stop = self._run(prompt, transfer, body)
        if isinstance(stop, str):
            status = "aborted"
        await self._answer(path, body, send, (prompt, output, status, stop))

    def _prompt(self, path: str, body: dict[str, Any], params: Any) -> list[int]:
        if path.endswith("/completions") and "messages" not in body:
            prompt = body["prompt"]
            return encode(prompt) if isinstance(prompt, str) else list(prompt)
        if params and "prompt_token_ids" in params:
            return list(params["prompt_token_ids"])
        return encode(render(body["messages"], True))

    def _run(
        self, prompt: list[int], transfer: Transfer, body: dict[str, Any]
    ) -> tuple[list[int], str, Any]:
        state = 0
        if transfer.load is not None:
            state = self._load(transfer)
            prompt = prompt[1:]
        state = read(prompt, state)
        if transfer.prompt is not None:
            self._save(transfer.prompt.index, state)
        forced = [*encode(body["force"]), END] if "force" in body else None
        output: list[int] = []
        status, stop, consumed = "length_capped", None, len(prompt)
        for at in range(body.get("max_tokens", 16)):
            token = choose(state) if forced is None else forced[at]
            output.append(token)
            stop = _stop(output, body)
            if token == END or stop is not None:
                status = "stopped"
                break
            if at + 1 < body.get("max_tokens", 16):
                state, consumed = step(state, token), consumed + 1
        if self.ahead and status == "stopped":
            state, consumed = step(state, output[-1]), consumed + 1
        if transfer.save is not None:
            self._save(transfer.save.index, state)
        self._tell(transfer, prompt, output, status, consumed)
        return output, status, stop

    def _tell(
        self, transfer: Transfer, prompt: list[int], output: list[int], status: str, consumed: int
    ) -> None:
        future = self._events.get(transfer.id)
        if future is None:
            return
        framed = [PLACEHOLDER, *prompt] if transfer.load is not None else prompt
        hidden = len(framed) - len(prompt)
        tokens = [*framed, *output]
        saves = transfer.save is not None, transfer.prompt is not None
        future.set_result(Ended(status, consumed + hidden, tokens, *saves, None))

    def _load(self, transfer: Transfer) -> int:
        assert transfer.load is not None
        with self.hot._file.hold(transfer.load) as view:
            (state,) = struct.unpack_from("=Q", view)
        return int(state)

    def _save(self, index: int, state: int) -> None:
        struct.pack_into("=Q", self.hot._file.view(index), 0, state)

    async def _answer(self, path: str, body: dict[str, Any], send: Send, result: Any) -> None:
        prompt, output, status, stop = result
        text = decode([token for token in output if token != END])
        if isinstance(stop, str):
            text = text[: text.index(stop)]
        reason = {"length_capped": "length"}.get(status, "stop")
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(output),
            "total_tokens": len(prompt) + len(output),
        }
        chat = "messages" in body
        end = {"index": 0, "finish_reason": reason, "stop_reason": stop}
        if not body.get("stream"):
            said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            choices = [{**end, **said}]
            content = {"id": "x", "choices": choices, "usage": usage, "kv_transfer_params": None}
            await _json(send, 200, content)
            return
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pieces = re.findall(r"(?s).{1,3}", text) or [""]
        for at, piece in enumerate(pieces):
            said = {"delta": {"content": piece}} if chat else {"text": piece}
            last = at + 1 == len(pieces)
            choice = {"index": 0, "finish_reason": None, **said, **(end if last else {})}
            await _event(send, json.dumps({"id": "x", "choices": [choice]}, separators=(",", ":")))
        if (body.get("stream_options") or {}).get("include_usage"):
            await _event(send, json.dumps({"id": "x", "choices": [], "usage": usage}))
        await _event(send, "[DONE]")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _stop(output: list[int], body: dict[str, Any]) -> Any:
    if output[-1] in body.get("stop_token_ids", ()):
        return output[-1]
    stops = body.get("stop") or []
    text = decode(output)
    return next((s for s in ([stops] if isinstance(stops, str) else stops) if s in text), None)


async def _event(send: Send, data: str) -> None:
    await send(
        {"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": True}
    )


async def _json(send: Send, status: int, content: Any) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})

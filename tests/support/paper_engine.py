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
from pathlib import Path
from typing import Any

import engine_config
import paper_responses
from starlette.types import Receive, Scope, Send

from rwkv_server import settings, vllm_chat_compat
from rwkv_server.states.connector.params import FIELD, Transfer, verify
from rwkv_server.states.environment import Environment
from rwkv_server.states.record import Fingerprint
from rwkv_server.states.runtime import read_layout
from rwkv_server.states.slots import Lease, SlotFile

KEY = b"k" * 32
END, PLACEHOLDER, VOCABULARY = 0, 319, 320
MODEL = Path(__file__).parents[2] / "image" / "models" / "tiny-recall"

# Tokens of more than one letter, so that stops can begin inside one.
_LONG = [b"User:", b"\n\n", b".\n", b"ab", b"lo."]
_TOKENS = {256 + at: text for at, text in enumerate(_LONG)}
_LETTERS = b"abcdefghij klm.\n"


def environment(folder: Path, ordinal: int = 0, **fields: Any) -> Environment:
    """Facts of a pod whose states lie in `folder`; `fields` are of the settings' state."""
    alone = {"url": "http://127.0.0.{ordinal}", "ordinals": 1}
    sample = engine_config.changed(state__path=str(folder / "store"), state__peers=alone)
    state = sample["state"] | {"hotBytes": 3 << 20} | fields
    (folder / "store").mkdir(exist_ok=True)
    return Environment(
        shm=folder / f"slots-{ordinal}",
        socket=folder / f"socket-{ordinal}",
        ranks=1,
        model=MODEL,
        dtype="float32",
        max_model_len=4096,
        vocabulary=VOCABULARY,
        placeholder=PLACEHOLDER,
        namespace="default",
        name="chat",
        ordinal=ordinal,
        fingerprint=Fingerprint(model="m", tokenizer="t", layout=1, dtype="float32"),
        state=settings.State.model_validate(state),
    )


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
    turns = [f"{names[m['role']]}: {_said(m['content'])}" for m in messages]
    return "\n\n".join(turns) + ("\n\nAssistant:" if prompt else "")


def _said(content: Any) -> str:
    return "".join(part["text"] for part in content) if isinstance(content, list) else str(content)


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
        limit: tokens of a prompt.
        old: whether it is as vLLM 0.18, whose routes for chats and Responses take no tokens.
        deaf: whether its renderer is one that takes no carried tokens either.
        seen: bodies of requests to generate.
        prompts: their tokens.
        asked: paths of all requests.
        rendered: bodies of chats to render.
        gate: generation waits for it, before its first token.
    """

    told: Environment
    ahead: bool = False
    limit: int = 10_000
    old: bool = False
    deaf: bool = False
    seen: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[list[int]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    rendered: list[dict[str, Any]] = field(default_factory=list)
    gate: asyncio.Event | None = None
    _slots: SlotFile | None = None
    _socket: asyncio.StreamWriter | None = None
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = json.loads((await receive())["body"])
        path = scope["path"]
        self.asked.append(path)
        if path == "/tokenize":
            text = body.get("prompt")
            if text is None:
                self.rendered.append(body)
                text = render(body["messages"], body["add_generation_prompt"])
            await _json(send, 200, {"tokens": encode(text)})
        elif path == "/detokenize":
            await _json(send, 200, {"prompt": decode(body["tokens"])})
        else:
            self.seen.append(body)
            await self._generate(path, body, receive, send)

    async def _generate(self, path: str, body: dict[str, Any], receive: Any, send: Send) -> None:
        params = self._params(path, body)
        prompt = self._prompt(path, body, params)
        self.prompts.append(prompt)
        if len(prompt) > self.limit:
            await _json(send, 400, {"error": {"message": "too long", "code": 400}})
            return
        if self.gate is not None:
            await self.gate.wait()
        transfer = Transfer("none") if params is None else verify(params, KEY)
        output, status, stop, consumed = self._run(prompt, transfer, body)
        # A stop string ends a request from outside of the engine.
        ended = "aborted" if isinstance(stop, str) else status
        if params is not None:
            await self._tell(
                transfer, prompt[1:] if transfer.load else prompt, output, ended, consumed
            )
        if path == "/v1/responses":
            text, full = self._text(output, status, stop), status == "length_capped"
            await paper_responses.answer(body, send, prompt, text, len(output), full)
            return
        await self._answer(body, send, (prompt, output, status, stop))

    def _params(self, path: str, body: dict[str, Any]) -> Any:
        if not self.old or path != "/v1/responses":
            return body.get("kv_transfer_params")
        given = body.get("vllm_xargs") or {}
        return given if FIELD in given else None

    def _prompt(self, path: str, body: dict[str, Any], params: Any) -> list[int]:
        if path.endswith("/completions") and "messages" not in body:
            prompt = body["prompt"]
            return encode(prompt) if isinstance(prompt, str) else list(prompt)
        if self.old and not self.deaf and (carried := vllm_chat_compat.take_carried()):
            return carried
        taken = not self.old and params and "prompt_token_ids" in params
        if taken and "image_url" not in json.dumps(body):
            return list(params["prompt_token_ids"])
        messages = body["messages"] if "messages" in body else paper_responses.chat_of(body)
        return encode(render(messages, True))

    def _run(
        self, prompt: list[int], transfer: Transfer, body: dict[str, Any]
    ) -> tuple[list[int], str, Any, int]:
        state = 0
        if transfer.load is not None:
            state = self._load(transfer.load)
            prompt = prompt[1:]
        state = read(prompt, state)
        if transfer.prompt is not None:
            self._save(transfer.prompt, state)
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
            self._save(transfer.save, state)
        return output, status, stop, consumed

    async def _tell(
        self, transfer: Transfer, prompt: list[int], output: list[int], status: str, consumed: int
    ) -> None:
        async with self._opening:
            if self._socket is None:
                _, self._socket = await asyncio.open_unix_connection(self.told.socket)
        framed = [PLACEHOLDER, *prompt] if transfer.load is not None else prompt
        event = {
            "id": transfer.id,
            "rank": 0,
            "status": status,
            "consumed": consumed + len(framed) - len(prompt),
            "tokens": [*framed, *output],
            "saved": transfer.save is not None,
            "prompt_saved": transfer.prompt is not None,
            "failed": None,
        }
        self._socket.write(json.dumps(event).encode() + b"\n")

    def _held(self, lease: Lease) -> Any:
        if self._slots is None:
            self._slots = SlotFile.open(self.told.shm, read_layout(self.told).nbytes)
        return self._slots.hold(lease)

    def _load(self, lease: Lease) -> int:
        with self._held(lease) as view:
            parts = struct.unpack_from("=4I", view)
        return sum(part << 16 * at for at, part in enumerate(parts))

    def _save(self, lease: Lease, state: int) -> None:
        with self._held(lease) as view:
            # As four numbers with no exponent: imports refuse what isn't finite.
            parts = ((state >> 16 * at) & 0xFFFF for at in range(4))
            struct.pack_into("=4I", view, 0, *parts)

    async def close(self) -> None:
        """Give back what it holds of the runtime."""
        if self._socket is not None:
            self._socket.close()
            await self._socket.wait_closed()
            await asyncio.sleep(0.01)  # the other end sees it
        if self._slots is not None:
            self._slots.close()

    def _text(self, output: list[int], status: str, stop: Any) -> str:
        if isinstance(stop, str):
            text = decode(output)
            return text[: text.index(stop)]
        return decode(output[:-1] if status == "stopped" else output)

    async def _answer(self, body: dict[str, Any], send: Send, result: Any) -> None:
        prompt, output, status, stop = result
        text = self._text(output, status, stop)
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

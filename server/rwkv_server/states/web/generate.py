"""Generation with a state: a client's request in, vLLM's own route, its answer with `state` out.

What vLLM sees is a plain request: tokens in place of the text, signed connector parameters, nothing
of ours beside. Whatever it refuses reaches the client as it is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rwkv_server.states import wishes
from rwkv_server.states.errors import StateError
from rwkv_server.states.record import Finish
from rwkv_server.states.turn import Answer, Outcome, Turn
from rwkv_server.states.turns import Turns
from rwkv_server.states.web import answers, inner, text
from rwkv_server.states.web.errors import refusal_of
from rwkv_server.states.web.exchange import Asked, Exchange, call, send_part, send_reply
from rwkv_server.states.web.sse import Stream, finish_of, write_event
from rwkv_server.states.web.text import Text
from rwkv_server.states.web.visible import Told, read_told, visible_tokens
from rwkv_server.states.wishes import Wish
from rwkv_server.vllm_chat_compat import ChatRoutes

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_KEPT_FINISHES = ("stop", "length", "tool_calls", "repetition")

log = logging.getLogger(__name__)


class Generator:
    """Generation with states on chat and text completions."""

    def __init__(self, app: ASGIApp, turns: Turns, chats: ChatRoutes) -> None:
        """Generate through `app`, whose chats are as `chats` says."""
        self._app, self._turns, self._chats = app, turns, chats

    def exchange(
        self, scope: Scope, receive: Receive, send: Send, request: Mapping[str, Any]
    ) -> Exchange:
        """A request and what is needed to answer it."""
        return Exchange(scope, receive, send, request, Text(self._app, scope, request.get("model")))

    async def serve(self, exchange: Exchange, wish: Wish) -> None:
        """Answer a request that has a wish.

        Raises:
            StateError: nothing was sent yet.
            inner.Declined: vLLM refused it before it generated; nothing was sent yet.
        """
        parent = await self._turns.find(wish)
        if exchange.path == CHAT:
            chat = self._chats.template_request(exchange.request)
            tokens = await text.chat_tokens(exchange.text, chat, parent.record)
        else:
            tokens = await text.completion_tokens(exchange.text, exchange.request, parent.record)
        turn = await self._turns.begin(wish, parent, tokens)
        await self.run(exchange, turn)

    async def run(self, exchange: Exchange, turn: Turn) -> None:
        """Generate for a turn that was begun, answer, and end the turn."""
        reply, stream = inner.Reply(), Stream(partial(answers.correct_usage, frame=turn.frame))

        async def relay(message: Message) -> None:
            if message["type"] == "http.response.start":
                reply.status, reply.headers = message["status"], list(message.get("headers", ()))
                if reply.streams:
                    await exchange.send(message)
            elif not reply.streams:
                reply.body += message.get("body", b"")
            elif passed := stream.feed(message.get("body", b"")):
                await send_part(exchange.send, passed, more=True)

        try:
            await call(self._app, exchange, framed(exchange, turn, self._chats), relay)
            if exchange.gone:
                return
            if reply.streams:
                await self._end_stream(exchange, turn, stream)
            elif reply.status == 200:
                await self._end_whole(exchange, turn, reply)
            else:
                # First, so that who hears of it can go on at once.
                await self._turns.abandon(turn)
                await send_reply(exchange.send, reply)
        finally:
            # A turn that was finished has nothing left to give back.
            await self._turns.abandon(turn)

    async def _end_whole(self, exchange: Exchange, turn: Turn, reply: inner.Reply) -> None:
        body = json.loads(reply.body)
        usage = body.get("usage") or {}
        answer = await self._end(exchange, turn, read_told(body, usage))
        if turn.wish.dialect == "v1" and answer.error is not None:
            raise answer.error  # that protocol has no other place for it
        if usage:
            answers.correct_usage(usage, turn.frame)
        body.pop("kv_transfer_params", None)
        body.update(answers.tell(turn.wish, answer))
        reply.body = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        await send_reply(exchange.send, reply)

    async def _end_stream(self, exchange: Exchange, turn: Turn, stream: Stream) -> None:
        answer = await self._end(exchange, turn, None if stream.failed else _told_of(stream))
        wanted = exchange.request.get("stream_options")
        with_usage = isinstance(wanted, Mapping) and bool(wanted.get("include_usage"))
        if turn.wish.dialect == "v1" and answer.error is not None:
            body = json.loads(refusal_of(answer.error).body())
            await send_part(exchange.send, write_event(body), more=True)
        last = stream.end(answers.tell(turn.wish, answer), with_usage)
        await send_part(exchange.send, last, more=False)

    async def _end(self, exchange: Exchange, turn: Turn, told: Told | None) -> Answer:
        """Finish a turn whose text is there."""
        if not turn.wish.save:
            return await self._turns.finish(turn, None)
        if told is None or told.finish not in _KEPT_FINISHES:
            error = StateError("the generation didn't end by itself, so nothing was saved")
            return await self._turns.fail(turn, error)
        try:
            ended = await self._turns.ended(turn)
            prompt = len(turn.frame.tokens)
            visible = await visible_tokens(exchange.text, exchange.request, ended, prompt, told)
        except StateError as error:
            return await self._turns.fail(turn, error)
        outcome = Outcome(ended, visible, cast(Finish, told.finish))
        return await self._turns.finish(turn, outcome)


def framed(exchange: Exchange, turn: Turn, chats: ChatRoutes) -> Asked:
    """The request as vLLM is to see it."""
    request = exchange.request
    plain = wishes.without_wish(request)
    tokens = list(turn.frame.tokens)
    options = request.get("stream_options") or {}
    if exchange.streams and turn.wish.save and isinstance(options, Mapping):
        plain["stream_options"] = {**options, "include_usage": True}
    if exchange.path == COMPLETIONS:
        return Asked({**plain, "prompt": tokens, "kv_transfer_params": turn.params})
    # Tokens stand for all messages. Of a content that it holds for no text vLLM would make its own
    # tokens after all, and forget ours.
    plain["messages"] = [{"role": last_role(request), "content": "-"}]
    return Asked(*chats.hand_over(plain, turn.params, tokens))


def last_role(request: Mapping[str, Any]) -> str:
    """Whose message is the last; without a generation prompt vLLM's answer goes on with it."""
    last = request["messages"][-1] if request["messages"] else None
    role = last.get("role") if isinstance(last, Mapping) else None
    return role if role in ("system", "assistant") else "user"


def _told_of(stream: Stream) -> Told | None:
    usage: dict[str, Any] = next((c["usage"] for c in reversed(stream.held) if c.get("usage")), {})
    last = next((chunk for chunk in stream.held if finish_of(chunk) is not None), {})
    return read_told(last, usage)

"""Automatic reuse for clients that know nothing of states and resend their whole text.

A request that can't tell the difference is tokenized here; the engine reads only what no snapshot
has read, so a chat is bound by what is new in it. Whatever is in the way, the request is vLLM's own
then, as if there were no states.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.types import ASGIApp

from rwkv_server.states import boundary, reusable
from rwkv_server.states.errors import StateError
from rwkv_server.states.turn import Parent, Turn
from rwkv_server.states.turns import Turns
from rwkv_server.states.web import inner, response_input, text
from rwkv_server.states.web.exchange import Exchange
from rwkv_server.states.web.generate import CHAT, COMPLETIONS, Generator
from rwkv_server.states.wishes import Wish
from rwkv_server.vllm_chat_compat import ChatRoutes

log = logging.getLogger(__name__)

# Sets of template options whose passing ends are remembered.
_MOST_OPTIONS = 256


def seeds_by_place(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether seeded draws depend on a token's place: so they do in vLLM's model runner V2."""
    return variables.get("VLLM_USE_V2_MODEL_RUNNER") == "1"


class Unasked:
    """Serves requests without a wish."""

    def __init__(
        self,
        app: ASGIApp,
        turns: Turns,
        generator: Generator,
        chats: ChatRoutes,
        by_place: bool,
    ) -> None:
        """Generate with `generator`; `by_place` as `seeds_by_place` says."""
        self._app, self._turns, self._generator = app, turns, generator
        self._chats, self._by_place = chats, by_place
        self._passing: dict[str, tuple[int, ...]] = {}

    def may_reuse(self, request: Mapping[str, Any]) -> bool:
        """Whether the request's answer is the same with a snapshot of its beginning."""
        return reusable.may_reuse(request, seeds_by_place=self._by_place)

    def may_reuse_response(self, request: Mapping[str, Any]) -> bool:
        """The same for a Response: vLLM has to read its input as we do, in whatever words."""
        tools = bool(request.get("tools"))  # vLLM words them otherwise than we do
        alike = self._chats.take_tokens or response_input.is_plain(request)
        return alike and not tools and self.may_reuse(request)

    async def serve(self, exchange: Exchange, tenant: str) -> bool:
        """Answer, or return False where the request is vLLM's own."""
        if exchange.path not in (CHAT, COMPLETIONS) or not self.may_reuse(exchange.request):
            return False
        try:
            turn = await self._begin(exchange, tenant)
        except (StateError, inner.Declined):
            return False
        except Exception:
            log.exception("a request's beginning isn't reused")
            return False
        await self._generator.run(exchange, turn)
        return True

    async def _begin(self, exchange: Exchange, tenant: str) -> Turn:
        wish = Wish(tenant, dialect="none", reuse=True, remember=True, durable=True)
        if exchange.path == COMPLETIONS:
            tokens = await text.completion_tokens(exchange.text, exchange.request, None)
            return await self._turns.begin(wish, Parent(None), tokens)
        chat = self._chats.template_request(exchange.request)
        tokens = await text.chat_tokens(exchange.text, chat, None)
        passing = await self._find_passing(exchange, chat)
        stable = boundary.stable_length(tokens, passing)
        if stable == len(tokens) or self._turns.remembers(tenant, tokens[:stable]):
            return await self._turns.begin(wish, Parent(None), tokens)
        # The template's last words pass: what comes before them is read by a request of its own,
        # and the chat goes on from its snapshot.
        cached = await self._read(exchange, wish, tokens[:stable])
        turn = await self._turns.begin(replace(wish, remember=False), Parent(None), tokens)
        turn.frame = replace(turn.frame, cached=min(cached, turn.frame.cached))
        return turn

    async def _find_passing(self, exchange: Exchange, chat: Mapping[str, Any]) -> tuple[int, ...]:
        key = boundary.options_key(chat)
        if key not in self._passing:
            short, long = [
                await exchange.text.render(probe, probe["messages"])
                for probe in boundary.probes(chat)
            ]
            if len(self._passing) >= _MOST_OPTIONS:
                self._passing.clear()
            self._passing[key] = boundary.find_passing(short, long)
        return self._passing[key]

    async def _read(self, exchange: Exchange, wish: Wish, tokens: list[int]) -> int:
        """Let the engine read a text and leave a snapshot; says how much of it was there."""
        turn = await self._turns.begin(wish, Parent(None), tokens)
        asked = {
            "model": exchange.request.get("model"),
            "prompt": list(turn.frame.tokens),
            "max_tokens": 1,
            "temperature": 0,
            "kv_transfer_params": turn.params,
        }
        try:
            await inner.ask(self._app, exchange.scope, COMPLETIONS, asked)
            await self._turns.finish(turn, None)
        finally:
            await self._turns.abandon(turn)
        return turn.frame.cached

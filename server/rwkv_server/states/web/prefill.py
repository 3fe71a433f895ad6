"""States made from a text that nobody answers: one token is generated and dropped."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Scope

from rwkv_server.states.parts import New
from rwkv_server.states.record import Record
from rwkv_server.states.turn import Outcome, Parent
from rwkv_server.states.turns import Turns
from rwkv_server.states.web import inner
from rwkv_server.states.web.text import Text
from rwkv_server.states.wishes import Wish
from rwkv_server.web.errors import Refusal


class EnginePrefill:
    """Asks vLLM's own route, with this engine's key."""

    def __init__(
        self, app: ASGIApp, outer: Any, turns: Turns, key: str, max_model_len: int
    ) -> None:
        """Ask through `app`, a part of vLLM's `outer` app."""
        self._app, self._turns, self._longest = app, turns, max_model_len - 1
        self._scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 0),
            "headers": [(b"authorization", f"Bearer {key}".encode()), (b"host", b"127.0.0.1")],
            "app": outer,
        }

    async def prefill(self, request: dict[str, Any], new: New) -> Record:
        """Save what the model holds after `text`, or after `messages` as its template has them.

        Raises:
            StateError: of any kind.
            inner.Declined: vLLM refused it.
            Refusal: it is too long.
        """
        text = Text(self._app, self._scope, None)
        if "messages" in request:
            open_chat = {**request, "add_generation_prompt": False}
            tokens = await text.render(open_chat, request["messages"])
        else:
            tokens = await text.encode(request["text"], special=True)
        if len(tokens) > self._longest:
            field = "messages" if "messages" in request else "text"
            found = f"{field}: {len(tokens)} tokens, wanted at most {self._longest}."
            raise Refusal(400, "context_length_exceeded", found, field)
        wish = Wish(
            new.tenant,
            save=True,
            name=new.name,
            session=new.session,
            ttl_s=new.ttl_s,
            last_role=request["messages"][-1]["role"] if "messages" in request else None,
        )
        return await self._run(wish, tokens)

    async def _run(self, wish: Wish, tokens: list[int]) -> Record:
        if wish.name is not None:
            await self._turns.check_name(wish.tenant, wish.name)
        turn = await self._turns.begin(wish, Parent(None), tokens)
        try:
            await inner.ask(
                self._app,
                {**self._scope, "method": "POST", "path": "", "state": {}},
                "/v1/completions",
                {
                    "prompt": list(turn.frame.tokens),
                    "max_tokens": 1,
                    "kv_transfer_params": turn.params,
                },
            )
            ended = await self._turns.ended(turn)
            answer = await self._turns.finish(turn, Outcome(ended, (), "prompt"))
        finally:
            await self._turns.abandon(turn)
        if answer.record is None:
            raise answer.error or AssertionError
        return answer.record

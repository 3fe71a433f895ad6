"""Everything that answers, made once for a started engine."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.types import ASGIApp

from rwkv_server.states import refs
from rwkv_server.states.runtime import Runtime
from rwkv_server.states.web import response_wish
from rwkv_server.states.web.generate import Generator
from rwkv_server.states.web.responses import Responses
from rwkv_server.states.web.routing import build_routes
from rwkv_server.states.web.unasked import Unasked, seeds_by_place
from rwkv_server.states.wishes import Wish


@dataclass(frozen=True)
class Desk:
    """Who answers what.

    Attributes:
        generator: chats and completions with a wish.
        responses: Responses.
        unasked: requests without a wish; None where reuse is off.
        routes: the states' own routes.
        home: this engine and its store, for ids of Responses.
    """

    generator: Generator
    responses: Responses
    unasked: Unasked | None
    routes: ASGIApp
    home: refs.Home

    def make_id(self) -> str:
        """A new Response's id."""
        return refs.make_ref(self.home, secrets.token_bytes, response_wish.PREFIX)

    def with_reuse(self, wish: Wish, request: Mapping[str, Any]) -> Wish:
        """The wish of a new text, which may begin with what an earlier one has left.

        What is saved can be erased by its name, and a beginning has none: that stays in memory, and
        a session leaves nothing.
        """
        if self.unasked is None or wish.ref is not None or not self.unasked.may_reuse(request):
            return wish
        return replace(wish, reuse=True, remember=wish.session is None)


def open_desk(app: ASGIApp, outer: Any, runtime: Runtime) -> Desk:
    """All of it.

    Args:
        app: what the layer wraps.
        outer: vLLM's whole app, which its routes look for.
        runtime: what it works with.
    """
    generator = Generator(app, runtime.turns, runtime.chats)
    unasked = None
    if runtime.prefixes is not None:
        unasked = Unasked(app, runtime.turns, generator, runtime.chats, seeds_by_place())
    return Desk(
        generator=generator,
        responses=Responses(app, runtime.turns, runtime.store, runtime.chats),
        unasked=unasked,
        routes=build_routes(app, outer, runtime),
        home=refs.Home(runtime.environment.ordinal, runtime.store.epoch),
    )

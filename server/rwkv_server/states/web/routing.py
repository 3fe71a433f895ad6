"""All routes of the states that the layer answers itself."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import ASGIApp

from rwkv_server.states.exports import Limits
from rwkv_server.states.memory import Memory
from rwkv_server.states.parts import Facts, Parts
from rwkv_server.states.runtime import Runtime
from rwkv_server.states.saved import SavedStates
from rwkv_server.states.web import app as application
from rwkv_server.states.web.flush import Flush
from rwkv_server.states.web.prefill import EnginePrefill


def build_routes(app: ASGIApp, outer: Any, runtime: Runtime) -> ASGIApp:
    """The routes' app.

    Args:
        app: what the layer wraps.
        outer: vLLM's whole app, which its routes look for.
        runtime: everything else.
    """
    facts_of, state = runtime.environment, runtime.environment.state
    facts = Facts(
        ordinal=facts_of.ordinal,
        layout=runtime.layout,
        fingerprint=facts_of.fingerprint,
        limits=Limits(facts_of.vocabulary, facts_of.max_model_len),
        default_ttl_s=float(state.default_ttl_seconds),
        max_bytes_per_tenant=state.max_bytes_per_tenant,
        open_access=state.open_access,
    )
    prefill = EnginePrefill(app, outer, runtime.turns, runtime.key, facts_of.max_model_len)
    memory = Memory(
        runtime.hot, runtime.turns.in_use, _forget_prefixes(runtime), runtime.turns.erase
    )
    parts = Parts(runtime.store, memory, runtime.peers, prefill)
    saved = SavedStates(facts, parts, clock=time.time, random_bytes=secrets.token_bytes)
    return application.build_app(saved, Flush(runtime.turns, runtime.behind, runtime.store.shared))


def _forget_prefixes(runtime: Runtime) -> Callable[[str], Awaitable[None]]:
    async def forget(tenant: str) -> None:
        await runtime.turns.settle_all(tenant)
        if runtime.prefixes is not None:
            runtime.prefixes.forget(tenant)
        if runtime.behind is not None:
            await runtime.behind.forget(tenant)

    return forget

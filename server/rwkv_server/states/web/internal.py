"""What engines of a deployment tell each other, and the parent process: not for clients.

Only this engine's own store is asked here, so that no question travels further.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from rwkv_server.states import refs
from rwkv_server.states.claims import ClaimWish, EndWish, Token
from rwkv_server.states.errors import StateNotFound
from rwkv_server.states.record import dump_record
from rwkv_server.states.saved import SavedStates
from rwkv_server.states.web import reading
from rwkv_server.states.web.resources import FILE

Flush = Callable[[], Awaitable[dict[str, int]]]


def build_router(saved: SavedStates, flush: Flush) -> APIRouter:
    """The routes over this engine's own store."""
    router = APIRouter(prefix="/internal", include_in_schema=False)

    @router.get("/states")
    async def page(
        request: Request,
        session: str | None = None,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 100,
    ) -> dict[str, Any]:
        found = await saved.store.page(reading.tenant_of(request), session, after, limit)
        return {"data": [r.model_dump(mode="json") for r in found.records], "after": found.after}

    @router.delete("/states")
    async def forget(request: Request, session: str | None = None) -> dict[str, int]:
        return {"erased": await saved.erasures.here(reading.tenant_of(request), session)}

    @router.delete("/turns")
    async def drop_turns(request: Request) -> dict[str, str]:
        await saved.erasures.drop_turns(reading.tenant_of(request))
        return {}

    @router.get("/states/{ref}")
    async def show(request: Request, ref: str) -> Response:
        record = await saved.store.get(reading.tenant_of(request), refs.check_id(ref, "ref"))
        return Response(dump_record(record), media_type="application/json")

    @router.get("/states/{ref}/content")
    async def content(request: Request, ref: str) -> Response:
        record = await saved.store.get(reading.tenant_of(request), refs.check_id(ref, "ref"))
        return Response(await saved.store.content(record), media_type=FILE)

    @router.get("/sessions/{session}")
    async def session(request: Request, session: str) -> dict[str, Any]:
        refs.check_id(session, "session")
        found = await saved.session_here(reading.tenant_of(request), session)
        if found is None:
            raise StateNotFound(f"there is no session {session}")
        return found

    @router.post("/sessions/{session}/claim")
    async def claim(request: Request, session: str) -> Token:
        wish = await reading.read_json(request, ClaimWish)
        refs.check_id(session, "session")
        return await saved.claims.begin(reading.tenant_of(request), session, wish)

    @router.post("/sessions/{session}/end")
    async def end(request: Request, session: str) -> dict[str, str]:
        wish = await reading.read_json(request, EndWish)
        refs.check_id(session, "session")
        await saved.claims.end(reading.tenant_of(request), session, wish)
        return {}

    @router.post("/flush")
    async def write_down() -> dict[str, int]:
        return await flush()

    return router

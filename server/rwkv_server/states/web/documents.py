"""GET and DELETE `/v1/responses/{id}`: answers of the Responses API, kept beside their states."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from rwkv_server.states.saved import SavedStates
from rwkv_server.states.web import reading


def build_router(saved: SavedStates) -> APIRouter:
    """The routes over kept answers."""
    router = APIRouter(prefix="/v1/responses", tags=["responses"])

    @router.get("/{response}")
    async def show_response(request: Request, response: str) -> Response:
        """The answer as it was given."""
        content = await saved.document(reading.tenant_of(request), response)
        return Response(content, media_type="application/json")

    @router.delete("/{response}")
    async def delete_response(request: Request, response: str) -> dict[str, Any]:
        """Delete an answer and its state; what continues it stays."""
        tenant = reading.tenant_of(request)
        await saved.document(tenant, response)  # a state without an answer has its own route
        await saved.delete(tenant, response)
        return {"id": response, "object": "response", "deleted": True}

    return router

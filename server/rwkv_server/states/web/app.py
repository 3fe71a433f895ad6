"""The state API as one application: its routes, its errors in OpenAI's shape, its schema.

Lives inside the layer in front of vLLM, behind the gate that has looked at path and key.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from rwkv_server.states.errors import StateError
from rwkv_server.states.saved import SavedStates
from rwkv_server.states.web import compat, documents, inner, internal, resources, schemas
from rwkv_server.states.web.errors import refusal_of
from rwkv_server.web.errors import Refusal

TITLE = "Saved states of RWKV-7"
_STATUSES = (400, 403, 404, 409, 410, 413, 422, 429, 503, 507)


def build_app(saved: SavedStates, flush: internal.Flush, more: Sequence[APIRouter] = ()) -> FastAPI:
    """All routes over these states.

    Args:
        saved: what the routes are about.
        flush: writes down what is only in memory, before the pod ends.
        more: routers of other parts.
    """
    app = FastAPI(
        title=TITLE,
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={status: {"model": schemas.ErrorAnswer} for status in _STATUSES},
    )
    routers = [resources.build_router(saved), documents.build_router(saved)]
    routers += [compat.build_router(saved), internal.build_router(saved, flush)]
    for router in (*routers, *more):
        app.include_router(router)
    app.add_exception_handler(StateError, _answer_state_error)
    app.add_exception_handler(Refusal, _answer_refusal)
    app.add_exception_handler(inner.Declined, _answer_declined)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer_unforeseen)
    return app


def _answer(refusal: Refusal) -> Response:
    headers = dict(refusal.headers)
    return Response(refusal.body(), refusal.status, headers, media_type="application/json")


async def _answer_state_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, StateError)
    return _answer(refusal_of(error))


async def _answer_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return _answer(error)


async def _answer_declined(request: Request, error: Exception) -> Response:
    assert isinstance(error, inner.Declined)
    return Response(error.reply.body, error.reply.status, media_type="application/json")


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = str(first["loc"][-1])
    return _answer(Refusal(400, "invalid_value", f"{field}: {first['msg']}.", field))


async def _answer_unforeseen(request: Request, error: Exception) -> Response:
    """Only the answer: the error goes on to the server, which logs it."""
    return _answer(Refusal(500, "server_error", f"{type(error).__name__}; the server's log has it"))


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    text = f"No route {request.method} {request.url.path[:200]}."
    return _answer(Refusal(405 if error.status_code == 405 else 404, code, text))

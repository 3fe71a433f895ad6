"""`/v1/rwkv/state`: the protocol vllm-rwkv.state-cache.v1, for clients that know that one.

Same routes, envelope, field names and statuses; what it lacks (owner, epoch, expiry, digests) comes
as further fields. There a refusal is 404, 409, 501 or 503, so a state that expired or was lost is
unknown here, and one that doesn't fit is a conflict; `code` still says which.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from rwkv_server.states import refs
from rwkv_server.states.errors import (
    StateError,
    StateExpired,
    StateLost,
    StateQuota,
    StateStoreFull,
)
from rwkv_server.states.parts import New
from rwkv_server.states.record import Record
from rwkv_server.states.saved import SavedStates
from rwkv_server.states.web import reading
from rwkv_server.states.web.errors import refusal_of
from rwkv_server.states.wishes import AUTO
from rwkv_server.web.errors import Refusal

PROTOCOL = "vllm-rwkv.state-cache.v1"
PREFIX = "rwkv-"
# Where clients of the protocol say what an upload is to be called.
_NAMES = ("target_ref", "state_ref", "ref")
_STATUSES: dict[type[StateError], int] = {
    StateExpired: 404,
    StateLost: 404,
    StateQuota: 409,
    StateStoreFull: 409,
}


class Clone(BaseModel):
    """What a copy is to be called; `auto` leaves it to the server."""

    model_config = ConfigDict(extra="forbid", strict=True)

    target_ref: str = Field(max_length=128)


_CLONE = {"content": {"application/json": {"schema": Clone.model_json_schema()}}, "required": True}


class Envelope(BaseModel):
    """Every answer of the protocol; one engine is one worker here, whatever its ranks."""

    protocol: str = PROTOCOL
    action: str
    workers: list[dict[str, Any]]


def translated(error: StateError) -> Refusal:
    """The error as the protocol knows it."""
    refusal = refusal_of(error)
    status = _STATUSES.get(type(error), refusal.status)
    return Refusal(status, refusal.code, refusal.message, refusal.param, refusal.headers)


class _Route(APIRoute):
    """A route that refuses in the protocol's statuses."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See FastAPI."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except StateError as error:
                raise translated(error) from None

        return handle


def build_router(saved: SavedStates) -> APIRouter:
    """The routes over these states."""
    router = APIRouter(prefix="/v1/rwkv/state", tags=["state-cache.v1"], route_class=_Route)

    @router.get("/capabilities")
    async def show_capabilities(request: Request) -> Envelope:
        """What is there, and how much of it is used by this tenant."""
        tenant = reading.tenant_of(request)
        usage = await saved.usage(tenant)
        facts = saved.facts
        worker = {
            "supported": True,
            "enabled": True,
            "max_bytes": facts.max_bytes_per_tenant,
            "used_bytes": usage.nbytes,
            "reserved_bytes": 0,
            "snapshot_nbytes": facts.layout.nbytes,
            "state_count": usage.states,
            "prepared_read_count": 0,
            "import_supported": True,
            "epoch": saved.store.epoch,
            "model_digest": facts.fingerprint.model,
            "owner": tenant,
        }
        return Envelope(action="capabilities", workers=[worker])

    @router.post("/upload")
    async def upload(request: Request) -> Envelope:
        """Make a state from a state-tuned model's .pth."""
        tenant = reading.tenant_of(request)
        taken = await reading.read_upload(request, saved.largest_pth)
        names = [taken.fields[name] for name in _NAMES if name in taken.fields]
        new = _new(tenant, names[0] if names else AUTO, _NAMES[0])
        record = await saved.import_pth(new, taken.content)
        return Envelope(action="upload", workers=[_show(saved, record)])

    @router.get("/{ref}")
    async def inspect(request: Request, ref: str) -> Envelope:
        """What is known of a state."""
        record = await saved.show(reading.tenant_of(request), ref)
        return Envelope(action="inspect", workers=[_show(saved, record)])

    @router.post("/{ref}/clone", openapi_extra={"requestBody": _CLONE})
    async def clone(request: Request, ref: str) -> Envelope:
        """A copy under another name."""
        wanted = await reading.read_json(request, Clone)
        new = _new(reading.tenant_of(request), wanted.target_ref, "target_ref")
        record = await saved.fork(new, ref)
        return Envelope(action="clone", workers=[_show(saved, record)])

    @router.delete("/{ref}")
    async def delete(request: Request, ref: str) -> Envelope:
        """Delete a state that nobody reads."""
        await saved.delete(reading.tenant_of(request), ref)
        return Envelope(action="delete", workers=[{"state_ref": ref, "deleted": True}])

    return router


def _new(tenant: str, name: str, field: str) -> New:
    chosen = None if name == AUTO else refs.check_name(name, field)
    return New(tenant, chosen, prefix=PREFIX)


def _show(saved: SavedStates, record: Record) -> dict[str, Any]:
    return {
        "state_ref": record.ref,
        "nbytes": record.nbytes,
        "parent_ref": record.parent,
        "processed_token_count": record.consumed_tokens,
        "pending_tail_token_count": len(record.pending),
        "finish_reason": record.finish_reason,
        "state_dtype": record.fingerprint.dtype,
        "process_local": False,
        "durable": saved.durable,
        "scheduler_slots_reserved": 0,
        "epoch": record.epoch,
        "sha256": record.sha256,
        "model_digest": record.fingerprint.model,
        "created_at": record.created_at,
        "expires_at": record.expires_at,
        "owner": record.tenant,
    }

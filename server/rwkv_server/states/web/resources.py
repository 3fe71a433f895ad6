"""`/v1/states` and `/v1/sessions`: states as resources. HTTP only, what they do is in `saved`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import StreamingResponse

from rwkv_server.states import refs
from rwkv_server.states.parts import New
from rwkv_server.states.record import Record
from rwkv_server.states.saved import SavedStates
from rwkv_server.states.web import reading, schemas
from rwkv_server.states.web.schemas import (
    CreateState,
    Deleted,
    Erased,
    ForkState,
    SessionObject,
    StateList,
    StateObject,
    TouchState,
)
from rwkv_server.web.errors import Refusal

CHUNK = 1 << 20
FILE = "application/octet-stream"
_BINARY: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_FORM = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "name": {"type": "string"},
        "ttl_s": {"type": "number"},
    },
}

Ref = Annotated[str, Path(description="A state's name.")]
Session = Annotated[str | None, Query(description="Only states of this session.")]


def _json_body(model: type[schemas.ForkState] | type[TouchState]) -> dict[str, Any]:
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"content": content}}


def _uploads(*, json: bool) -> dict[str, Any]:
    content: dict[str, Any] = {FILE: _BINARY, "multipart/form-data": {"schema": _FORM}}
    if json:
        content |= _json_body(CreateState)["requestBody"]["content"]
    return {"requestBody": {"required": True, "content": content}}


def build_router(saved: SavedStates) -> APIRouter:
    """The routes over these states."""
    router = APIRouter(prefix="/v1", tags=["states"])

    def show(record: Record) -> StateObject:
        return schemas.show(record, saved.durable)

    @router.post("/states", status_code=201, openapi_extra=_uploads(json=True))
    async def create_state(request: Request) -> StateObject:
        """Save what the model holds after a text or messages, or an uploaded file's state."""
        tenant = reading.tenant_of(request)
        if not reading.is_json(request):
            return show(await take_upload(request, tenant, None))
        wanted = await reading.read_json(request, CreateState)
        new = New(tenant, wanted.name, None, wanted.ttl_s)
        return show(await saved.prefill(wanted.prompt(), new))

    @router.get("/states")
    async def list_states(
        request: Request,
        session: Session = None,
        after: Annotated[str | None, Query(description="`last_id` of the page before.")] = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> StateList:
        """Your own states, in order of their names."""
        for name, value in (("session", session), ("after", after)):
            if value is not None:
                refs.check_id(value, name)
        page = await saved.page(reading.tenant_of(request), session, after, limit)
        data = [show(record) for record in page.records]
        return StateList(data=data, has_more=page.after is not None, last_id=page.after)

    @router.delete("/states")
    async def erase_states(
        request: Request,
        session: Session = None,
        everything: Annotated[
            bool, Query(alias="all", description="Erase all that you have.")
        ] = False,
    ) -> Erased:
        """Erase a session, or everything; there is no way back."""
        if (session is None) == (not everything):
            raise Refusal(400, "invalid_value", "Say either session=<id> or all=true.", "session")
        count = await saved.forget(reading.tenant_of(request), session)
        return Erased(session=session, states=count)

    @router.get("/states/{ref}")
    async def show_state(request: Request, ref: Ref) -> StateObject:
        """What is known of a state."""
        return show(await saved.show(reading.tenant_of(request), ref))

    @router.delete("/states/{ref}")
    async def delete_state(request: Request, ref: Ref) -> Deleted:
        """Delete a state; its forks stay."""
        await saved.delete(reading.tenant_of(request), ref)
        return Deleted(ref=ref)

    @router.post("/states/{ref}/fork", status_code=201, openapi_extra=_json_body(ForkState))
    async def fork_state(request: Request, ref: Ref) -> StateObject:
        """A state of its own with the same content."""
        wanted = await reading.read_json(request, ForkState)
        new = New(reading.tenant_of(request), wanted.name, None, wanted.ttl_s)
        return show(await saved.fork(new, ref))

    @router.post("/states/{ref}/touch", openapi_extra=_json_body(TouchState))
    async def touch_state(request: Request, ref: Ref) -> StateObject:
        """Give a state a new time to live, from now."""
        wanted = await reading.read_json(request, TouchState)
        return show(await saved.touch(reading.tenant_of(request), ref, wanted.ttl_s))

    @router.get(
        "/states/{ref}/content",
        response_class=StreamingResponse,
        responses={200: {"content": {FILE: _BINARY}}},
    )
    async def export_state(request: Request, ref: Ref) -> StreamingResponse:
        """The state as a safetensors file, with what is known of it inside."""
        head, tensors = await saved.export(reading.tenant_of(request), ref)
        headers = {
            "content-length": str(len(head) + len(tensors)),
            "content-disposition": f'attachment; filename="{ref}.safetensors"',
        }
        return StreamingResponse(_chunks(head, tensors), media_type=FILE, headers=headers)

    @router.put("/states/{ref}/content", status_code=201, openapi_extra=_uploads(json=False))
    async def import_state(request: Request, ref: Ref) -> StateObject:
        """Make the state of that name from an exported file, or from a .pth initial state."""
        return show(await take_upload(request, reading.tenant_of(request), ref))

    @router.get("/sessions/{session}", tags=["sessions"])
    async def show_session(request: Request, session: str) -> SessionObject:
        """Where a session is."""
        found = await saved.session(reading.tenant_of(request), session)
        return SessionObject.model_validate(found)

    @router.delete("/sessions/{session}", tags=["sessions"])
    async def erase_session(request: Request, session: str) -> Erased:
        """Erase a session: its head and all its states."""
        count = await saved.forget(reading.tenant_of(request), session)
        return Erased(session=session, states=count)

    async def take_upload(request: Request, tenant: str, ref: str | None) -> Record:
        if ref is not None:
            saved.name(New(tenant, ref))
        upload = await reading.read_upload(request, max(saved.largest_upload, saved.largest_pth))
        fields = {name: upload.fields[name] for name in ("name", "ttl_s") if name in upload.fields}
        wanted = reading.check(schemas.UploadFields, fields)
        if ref is not None and wanted.name is not None:
            raise Refusal(400, "invalid_value", "The name is in the path already.", "name")
        new = New(tenant, wanted.name if ref is None else ref, None, wanted.ttl_s)
        if upload.is_pth:
            return await saved.import_pth(new, upload.content)
        return await saved.import_file(new, upload.content)

    return router


def _chunks(head: bytes, tensors: memoryview) -> Iterator[bytes]:
    yield head
    for start in range(0, len(tensors), CHUNK):
        yield bytes(tensors[start : start + CHUNK])

"""Read a request to the state API: whose it is, its JSON, its upload, with bounds on each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import pydantic
from fastapi import Request
from starlette.requests import ClientDisconnect

from rwkv_server.states import wishes
from rwkv_server.states.errors import StateTooLarge
from rwkv_server.states.web import multipart
from rwkv_server.web import body
from rwkv_server.web.errors import Refusal

MAX_JSON_BYTES = 32 << 20
_PARTS_BYTES = 64 << 10
_ZIP = b"PK"

_Model = TypeVar("_Model", bound=pydantic.BaseModel)


@dataclass(frozen=True)
class Upload:
    """A file that came in, and what was said beside it.

    Attributes:
        is_pth: whether it is an initial state as torch writes it, or else safetensors.
    """

    content: bytes
    fields: dict[str, str]

    @property
    def is_pth(self) -> bool:
        """Told by the file's first bytes, not by its name."""
        return self.content[:2] == _ZIP


def tenant_of(request: Request) -> str:
    """Whose states it is about."""
    return wishes.read_tenant(request.headers)


async def read_json(request: Request, model: type[_Model]) -> _Model:
    """The request's JSON, checked; no body at all is an empty object.

    Raises:
        Refusal: 400, naming the field.
    """
    content = await _read(request, MAX_JSON_BYTES, "The request body")
    return check(model, body.check_body(content) if content else {})


def check(model: type[_Model], value: object) -> _Model:
    """`value` as a model; a Refusal with 400 names the first field that is wrong."""
    try:
        return model.model_validate(value)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        words = first["msg"].removeprefix("Value error, ")
        text = f"{field}: {words}." if field else f"The request: {words}."
        raise Refusal(400, "invalid_value", text, param=field or None) from None


async def read_upload(request: Request, limit: int) -> Upload:
    """The file in a body, or in a form's part `file`.

    Raises:
        StateTooLarge: it has more bytes than `limit`; the rest isn't read.
        Refusal: 400, a form without a file.
    """
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith(multipart.KIND):
        content = await _read(request, limit, "The upload")
        return Upload(content, dict(request.query_params))
    form = multipart.parse_form(kind, await _read(request, limit + _PARTS_BYTES, "The upload"))
    if len(form.files) != 1:
        text = f"The form has {len(form.files)} files, wanted one: the state."
        raise Refusal(400, "invalid_form", text, param="file")
    (content,) = form.files.values()
    return Upload(content, dict(request.query_params) | form.fields)


def is_json(request: Request) -> bool:
    """Whether the body is JSON, or nothing."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0]
    return kind.strip().lower() == "application/json"


async def _read(request: Request, limit: int, what: str) -> bytes:
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > limit:
        raise _too_large(what, told, limit)
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise _too_large(what, f"more than {limit}", limit)
            parts.append(part)
    except ClientDisconnect:
        raise Refusal(400, "incomplete_body", f"{what} ends before its end.") from None
    return b"".join(parts)


def _too_large(what: str, found: str, limit: int) -> StateTooLarge:
    return StateTooLarge(f"{what} has {found} bytes; a state of this model fits in {limit}")

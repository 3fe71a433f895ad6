"""multipart/form-data as RFC 7578 has it, of a body that is in memory already. Pure.

Nothing is decoded or written to a disk; a part's bytes are what lies between its boundaries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.message import Message

from rwkv_server.web.errors import Refusal

KIND = "multipart/form-data"
MAX_PARTS = 16
_MAX_HEAD = 16 << 10
_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,\-./:=? ]{0,69}[0-9A-Za-z'()+_,\-./:=?]")


@dataclass(frozen=True)
class Form:
    """A form's fields, and its files without their names."""

    fields: dict[str, str]
    files: dict[str, bytes]


def parse_form(content_type: str, body: bytes) -> Form:
    """The parts of a form.

    Raises:
        Refusal: 400, it is broken or has a part twice.
    """
    boundary = _parameter("content-type", content_type, "boundary")
    if boundary is None or not _BOUNDARY.fullmatch(boundary):
        raise _broken("its content-type has no boundary")
    mark = b"\r\n--" + boundary.encode()
    parts = (b"\r\n" + body).split(mark, MAX_PARTS + 2)
    if len(parts) > MAX_PARTS + 2:
        raise _broken(f"it has more than {MAX_PARTS} parts")
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise _broken("it was cut short")
    form = Form({}, {})
    for part in parts[1:-1]:
        _take(part, form)
    return form


def _take(part: bytes, form: Form) -> None:
    padding, _, rest = part.partition(b"\r\n")
    head, blank, content = (b"\r\n" + rest).partition(b"\r\n\r\n")
    if padding.strip(b" \t") or not blank or len(head) > _MAX_HEAD:
        raise _broken("a part has no head")
    lines = head.decode("utf-8", "replace").split("\r\n")
    headers = {line.partition(":")[0].strip().lower(): line for line in lines}
    disposition = headers.get("content-disposition", "").partition(":")[2].strip()
    name = _parameter("content-disposition", disposition, "name")
    if name is None:
        raise _broken("a part has no name")
    if name in form.fields or name in form.files:
        raise Refusal(400, "duplicate_key", f"The form has the part {name[:100]!r} twice.")
    if _parameter("content-disposition", disposition, "filename") is not None:
        form.files[name] = content
    else:
        form.fields[name] = content.decode("utf-8", "replace")


def _parameter(header: str, value: str, name: str) -> str | None:
    message = Message()
    message[header] = value
    found = message.get_param(name, None, header)
    return found if isinstance(found, str) else None


def _broken(what: str) -> Refusal:
    return Refusal(400, "invalid_form", f"The form can't be read: {what}.")

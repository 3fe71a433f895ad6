"""What the API process tells the connector about a request, signed. Pure.

It travels as vLLM's `kv_transfer_params`. Clients can't set that field, and if one found a way, the
signature would be missing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

from rwkv_server.states.slots import Lease

FIELD, SIGNATURE = "rwkv_transfer", "rwkv_signature"
_PLACES = ("load", "save", "prompt")


class BadTransfer(Exception):
    """Parameters that this server didn't make."""


@dataclass(frozen=True)
class Transfer:
    """One request's use of slots.

    Attributes:
        id: names the request in events; used once.
        load: the state to start from; the prompt's first token stands for it and isn't read.
        save: where the state at the end goes.
        prompt: where the state after the prompt's last token goes.
    """

    id: str
    load: Lease | None = None
    save: Lease | None = None
    prompt: Lease | None = None


def sign(transfer: Transfer, key: bytes) -> dict[str, Any]:
    """The value of `kv_transfer_params`."""
    places = {name: getattr(transfer, name) for name in _PLACES}
    content: dict[str, Any] = {"id": transfer.id}
    content |= {name: [at.index, at.tag] for name, at in places.items() if at is not None}
    text = json.dumps(content, sort_keys=True)
    return {FIELD: text, SIGNATURE: _mac(text, key)}


def verify(params: object, key: bytes) -> Transfer:
    """What `sign` was given; fields beside ours are left alone.

    Raises:
        BadTransfer: whatever else it is.
    """
    if not isinstance(params, dict):
        raise BadTransfer("not a table")
    text, mac = params.get(FIELD), params.get(SIGNATURE)
    if not isinstance(text, str) or not isinstance(mac, str):
        raise BadTransfer("not signed")
    try:
        if not hmac.compare_digest(mac.encode(), _mac(text, key).encode()):
            raise BadTransfer("signed with another key")
    except UnicodeEncodeError:
        raise BadTransfer("not text") from None
    # From here on it's our own.
    content = json.loads(text)
    return Transfer(content["id"], *(_lease(content.get(name)) for name in _PLACES))


def _lease(pair: list[int] | None) -> Lease | None:
    return None if pair is None else Lease(*pair)


def _mac(text: str, key: bytes) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

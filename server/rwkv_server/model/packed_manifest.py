"""The manifest beside packed feed-forward weights: what they are, of which model, for whom.

A seam for trying quantized weights, off by default: a manifest is never a licence to serve. One
that claims `production_accepted` is refused, because nothing here could know. Pure: no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rwkv_server.errors import ModelInvalid
from rwkv_server.model.config import RWKV7Config

# The key in vLLM's `additional_config`: {"scheme": "W8", "model": "sha256:…"}.
KEY = "rwkv_packed_ffn"
# Without a manifest: the engine packs the weights while it loads them. The value is the scheme.
ON_LOAD_KEY = "rwkv_pack_on_load"
ON_LOAD = ("Int8", "Int4")
SCHEMA = "rwkv-packed-ffn/1"
GROUP = 128
# Batch rows that a scheme was ever measured for; other batches take the dense weights.
ROWS = {"W8": (17, 28), "W4": (1, 8)}


@dataclass(frozen=True)
class Manifest:
    """A manifest that was checked.

    Attributes:
        rows: batch sizes, in rows, that may use the packed weights.
        payload: name of the file beside the manifest.
        shapes: (outputs, inputs) of each weight by its fla name.
    """

    scheme: str
    rows: tuple[int, ...]
    payload: str
    sha256: str
    shapes: Mapping[str, tuple[int, int]]


def file_name(scheme: str) -> str:
    """The manifest's name in the model's folder."""
    return f"packed-{scheme.lower()}.json"


def payload_name(scheme: str) -> str:
    """The payload's name beside it: safetensors, but not called so, or vLLM would load it too."""
    return f"packed-{scheme.lower()}.payload"


def ffn_shapes(config: RWKV7Config) -> dict[str, tuple[int, int]]:
    """The weights that are packed: both matrices of every layer's feed-forward half."""
    size, wide = config.hidden_size, config.intermediate_size
    shapes = {}
    for layer in range(config.num_hidden_layers):
        prefix = f"model.layers.{layer}.ffn."
        shapes[prefix + "key.weight"] = (wide, size)
        shapes[prefix + "value.weight"] = (size, wide)
    return shapes


def build(
    scheme: str, model_digest: str, config: RWKV7Config, payload_sha256: str
) -> dict[str, Any]:
    """A new manifest's content."""
    return {
        "schema": SCHEMA,
        "scheme": scheme,
        "group": GROUP if scheme == "W4" else None,
        "model": model_digest,
        "rows": list(ROWS[scheme]),
        "production_accepted": False,
        "payload": {"file": payload_name(scheme), "sha256": payload_sha256},
        "shapes": {name: list(shape) for name, shape in ffn_shapes(config).items()},
    }


def read(folder: Path, scheme: str, model_digest: str, config: RWKV7Config) -> Manifest:
    """The manifest for `scheme` in a model's folder, its payload's hash checked.

    Raises:
        ModelInvalid: it's missing, of an unknown form, of another model, of other shapes, claims
            too much, or its payload was changed.
    """
    path = folder / file_name(scheme)
    try:
        raw = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelInvalid(f"{path} can't be read: {error.strerror}") from None
    except ValueError:
        raise ModelInvalid(f"{path} is not JSON") from None
    manifest = parse(raw, path.name, scheme, model_digest, config)
    payload = folder / manifest.payload
    try:
        found = hashlib.sha256(payload.read_bytes()).hexdigest()
    except OSError as error:
        raise ModelInvalid(f"{payload} can't be read: {error.strerror}") from None
    _same(f"{payload}: SHA-256", found, manifest.sha256)
    return manifest


def parse(raw: Any, document: str, scheme: str, model_digest: str, config: RWKV7Config) -> Manifest:
    """Check a manifest's content; errors as `read`."""
    if not isinstance(raw, Mapping):
        raise ModelInvalid(f"{document} holds no object", wanted=SCHEMA)
    _same(f"{document}: schema", raw.get("schema"), SCHEMA)
    # `is`, not `==`: 0 and a missing claim aren't a plain no.
    if raw.get("production_accepted") is not False:
        raise ModelInvalid(
            f"{document}: production_accepted must be false: packed weights are for trials",
            found=repr(raw.get("production_accepted"))[:100],
            wanted="false",
        )
    _same(f"{document}: scheme", raw.get("scheme"), scheme)
    _same(f"{document}: group", raw.get("group"), GROUP if scheme == "W4" else None)
    _same(f"{document}: model", raw.get("model"), model_digest)
    if scheme == "W4" and (config.hidden_size % GROUP or config.intermediate_size % GROUP):
        raise ModelInvalid(
            f"{document}: W4 needs layers whose sizes are multiples of {GROUP}",
            found=[config.hidden_size, config.intermediate_size],
        )
    wanted = {name: list(shape) for name, shape in ffn_shapes(config).items()}
    _same(f"{document}: shapes", raw.get("shapes"), wanted)
    payload = raw.get("payload")
    payload = payload if isinstance(payload, Mapping) else {}
    _same(f"{document}: payload.file", payload.get("file"), payload_name(scheme))
    return Manifest(
        scheme=scheme,
        rows=_rows(raw.get("rows"), document, scheme),
        payload=payload_name(scheme),
        sha256=str(payload.get("sha256")),
        shapes=ffn_shapes(config),
    )


def _rows(rows: Any, document: str, scheme: str) -> tuple[int, ...]:
    allowed = ROWS[scheme]
    if not isinstance(rows, list) or not rows or any(row not in allowed for row in rows):
        raise ModelInvalid(
            f"{document}: rows must be among those that {scheme} was measured for",
            found=repr(rows)[:100],
            wanted=", ".join(map(str, allowed)),
        )
    return tuple(rows)


def _same(what: str, found: Any, wanted: Any) -> None:
    if type(found) is not type(wanted) or found != wanted:
        told, asked = repr(found)[:100], repr(wanted)[:100]
        raise ModelInvalid(f"{what} is {told}, wanted {asked}", found=told, wanted=asked)

"""Reads a hardware stack from a file: an RWKVHardwareStack, or only its spec."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rwkv_server import settings
from rwkv_server.errors import ConfigInvalid

_KIND = "RWKVHardwareStack"


def read_stack(path: Path) -> settings.Stack:
    """The stack in `path`.

    Raises:
        ConfigInvalid: no such stack there; names the field. A requirement that this server doesn't
            know is refused, not passed over.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigInvalid(f"{path} can't be read as a stack: {error}") from None
    if not isinstance(data, Mapping):
        raise ConfigInvalid(f"{path} holds no mapping", wanted=_KIND)
    return parse_stack(data, path.name)


def parse_stack(data: Mapping[str, Any], document: str) -> settings.Stack:
    """A stack from its object, or from its spec alone, which is then named after the document."""
    if data.get("kind", _KIND) != _KIND:
        raise ConfigInvalid(
            f"{document} is no hardware stack", found=str(data["kind"]), wanted=_KIND
        )
    spec = data.get("spec", data)
    name = data.get("metadata", {}).get("name", Path(document).stem)
    if not isinstance(spec, Mapping):
        raise ConfigInvalid(f"{document}: spec is no mapping", wanted=_KIND)
    supports = spec.get("supports") or {}
    return settings.validate(
        settings.Stack,
        {
            "name": name,
            "vendor": spec.get("vendor"),
            "runtime": spec.get("runtimeRequirements") or {},
            "supports": {"quantization": supports.get("quantization") or []},
        },
        document,
    )

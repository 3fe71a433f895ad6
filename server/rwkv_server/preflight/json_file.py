"""Read a model's small JSON files, which come from strangers: bounded, and errors name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rwkv_server.errors import ModelInvalid

MAX_BYTES = 64 << 20


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; ModelInvalid if it is missing, unreadable or something else."""
    try:
        size = path.stat().st_size
        if not path.is_file() or size > MAX_BYTES:
            raise ModelInvalid(
                f"{path} is no regular file of at most {MAX_BYTES} bytes", found=size
            )
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelInvalid(f"{path.parent} has no {path.name}", wanted=path.name) from None
    except OSError as error:
        raise ModelInvalid(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ModelInvalid(f"{path} is not JSON") from None
    if not isinstance(value, dict):
        raise ModelInvalid(f"{path} is not a JSON object")
    return value

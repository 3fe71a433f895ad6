"""An inspection as a table for people, or as JSON for programs."""

from __future__ import annotations

from typing import Any

from rwkv_server.inspection.inspect import Inspection
from rwkv_server.model.state_layout import DTYPE_BYTES

UNKNOWN = "unknown"


def render(found: Inspection) -> str:
    """One fact a line, then what is wrong."""
    rows = {
        "path": str(found.path),
        "format": found.format or UNKNOWN,
        "files": ", ".join(f"{name} ({_size(size)})" for name, size in found.files.items()) or "-",
        "size": f"{found.parameters:,} parameters in {found.tensors} tensors",
        "dtype": ", ".join(f"{name} ({n:,})" for name, n in found.stored.items()) or UNKNOWN,
    }
    if found.config is not None:
        config = found.config
        rows |= {
            "layers": str(config.num_hidden_layers),
            "width": f"{config.hidden_size}, {config.num_heads} heads of {config.head_dim}",
            "vocabulary": str(config.vocab_size),
        }
    rows |= {
        "tokenizer": found.tokenizer or "none",
        "template": found.template or "none",
    }
    for dtype in DTYPE_BYTES if found.config else ():
        state, memory = found.state_bytes(dtype), found.memory_bytes(dtype)
        assert state is not None and memory is not None
        rows[f"in {dtype}"] = (
            f"{state:,} bytes of state per session; "
            f"{_size(memory)} of memory per replica with {found.sessions} sessions"
        )
    width = max(map(len, rows))
    lines = [f"{name:<{width}}  {value}" for name, value in rows.items()]
    if found.problems:
        lines += ["", f"{len(found.problems)} problem(s):", *(f"- {p}" for p in found.problems)]
    else:
        lines += ["", "no problems found"]
    return "\n".join(lines)


def render_json(found: Inspection) -> dict[str, Any]:
    """The same facts under stable names."""
    return {
        "path": str(found.path),
        "format": found.format,
        "files": found.files,
        "parameters": found.parameters,
        "tensors": found.tensors,
        "dtype": found.dtype,
        "stored": found.stored,
        "config": None if found.config is None else vars(found.config),
        "tokenizer": found.tokenizer,
        "template": found.template,
        "sessions": found.sessions,
        "stateBytes": {dtype: found.state_bytes(dtype) for dtype in DTYPE_BYTES},
        "memoryBytes": {dtype: found.memory_bytes(dtype) for dtype in DTYPE_BYTES},
        "problems": found.problems,
    }


def _size(count: int) -> str:
    for unit, bound in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bound:
            return f"{count / bound:.1f} {unit}"
    return f"{count} B"

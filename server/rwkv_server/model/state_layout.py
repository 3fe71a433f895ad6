"""What one session's recurrent state is made of: names, shapes, types and bytes.

vLLM's cache pages, saved snapshots and the memory plan all follow this one description. Pure: no
torch here; types are their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from rwkv_server.model.config import RWKV7Config

# Raised whenever a name, shape, order or meaning below changes: saved states carry it.
LAYOUT_VERSION = 1

# Tensors of one layer's state.
TENSORS = 3

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class StateTensor:
    """One tensor of one layer's state."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor, packed."""
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


def layer_state(config: RWKV7Config, dtype: str, ranks: int = 1) -> tuple[StateTensor, ...]:
    """One layer's tensors in page order.

    `time_shift` and `channel_shift` hold the normed input of the last token, in the model's dtype;
    `wkv` is always fp32 and laid out (heads, key, value), key rows first, so that reading and
    updating it runs along contiguous value rows. Each of several tensor-parallel `ranks` has its
    heads' part of `wkv` and both shifts whole.
    """
    heads, size = config.num_heads // ranks, config.head_dim
    return (
        StateTensor("time_shift", (1, config.hidden_size), dtype),
        StateTensor("wkv", (heads, size, size), "float32"),
        StateTensor("channel_shift", (1, config.hidden_size), dtype),
    )


def layer_bytes(config: RWKV7Config, dtype: str) -> int:
    """Bytes of one layer's state: the page that the engine allocates per layer and session."""
    return sum(tensor.nbytes for tensor in layer_state(config, dtype))


def session_bytes(config: RWKV7Config, dtype: str) -> int:
    """Bytes of one session's whole state, independent of how many tokens it has seen."""
    return config.num_hidden_layers * layer_bytes(config, dtype)


def cache_bytes(config: RWKV7Config, dtype: str, sessions: int) -> int:
    """Bytes of an engine's state cache that holds `sessions` at once.

    One slot more than asked for: the engine keeps block 0 as the one that padding points at.
    """
    return (sessions + 1) * session_bytes(config, dtype)

"""One snapshot's tensors: their names, shapes and places in a slot and in a file. Pure.

A snapshot has whole heads and all layers, whatever number of ranks computed it. Layers follow each
other, and within one the tensors lie as in a page of the engine's cache; so on one rank a layer's
page and its part of the slot are the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from rwkv_server.model import state_layout
from rwkv_server.model.config import RWKV7Config

_NAMES = {"time_shift": "att_shift", "wkv": "wkv", "channel_shift": "ffn_shift"}


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a snapshot.

    Attributes:
        offset: of its first byte, from the snapshot's.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return prod(self.shape) * state_layout.DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class StateLayout:
    """What one snapshot is made of.

    Attributes:
        tensors: in the order of their bytes, without gaps.
        dtype: of the token shifts; the WKV state is float32 always.
        layers: of the model; each has as many tensors.
        version: changes with every name, shape, order or meaning.
    """

    tensors: tuple[TensorSpec, ...]
    dtype: str
    layers: int
    version: int = state_layout.LAYOUT_VERSION

    @property
    def nbytes(self) -> int:
        """Bytes of a snapshot."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @classmethod
    def of(cls, config: RWKV7Config, dtype: str) -> StateLayout:
        """The layout of a model's snapshots.

        Args:
            config: the model's.
            dtype: the one that the engine computes in, such as "bfloat16".
        """
        tensors: list[TensorSpec] = []
        offset = 0
        for layer in range(config.num_hidden_layers):
            for part in state_layout.layer_state(config, dtype):
                shape = part.shape if part.name == "wkv" else part.shape[1:]
                name = f"layers.{layer}.{_NAMES[part.name]}"
                tensors.append(TensorSpec(name, shape, part.dtype, offset))
                offset += part.nbytes
        return cls(tuple(tensors), dtype, config.num_hidden_layers)

    def of_layer(self, layer: int) -> tuple[TensorSpec, ...]:
        """One layer's tensors: token shift, WKV state, channel shift."""
        each = len(self.tensors) // self.layers
        return self.tensors[layer * each : (layer + 1) * each]

"""What the parent tells the vLLM child about states: one JSON in one variable, and a key.

The parent writes it, the layer in the API process and the connector in the engine's processes read
it. A child without the variable serves no states.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from rwkv_server import settings
from rwkv_server.states.record import Fingerprint

VARIABLE, KEY_VARIABLE = "RWKV_STATES", "RWKV_STATE_KEY"


class Environment(BaseModel):
    """Facts of this pod that states need.

    Attributes:
        shm: the file of slots, in shared memory.
        socket: where the engine's workers tell what they did.
        ranks: workers of the engine, each with its part of every snapshot.
        model: the folder with its config.json.
        dtype: that the engine computes in, such as "float32".
        placeholder: a token that stands for a state, and that no text has.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        protected_namespaces=(),
    )

    shm: Path
    socket: Path
    ranks: int
    model: Path
    dtype: str
    max_model_len: int
    vocabulary: int
    placeholder: int
    namespace: str
    name: str
    ordinal: int
    fingerprint: Fingerprint
    state: settings.State


def read_environment(variables: Mapping[str, str] = os.environ) -> Environment | None:
    """What the parent wrote, or None where there are no states."""
    text = variables.get(VARIABLE)
    return None if text is None else Environment.model_validate_json(text, strict=False)


def read_key(variables: Mapping[str, str] = os.environ) -> bytes:
    """The key that signs what the API process tells the connector."""
    return bytes.fromhex(variables[KEY_VARIABLE])

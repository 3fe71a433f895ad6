"""What the vLLM child is told about states: where its shared memory is, and whose states they are.

Pure but for the digest of a tokenizer and the removal of what a child left in shared memory.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path

from rwkv_server.model import file_names, state_layout
from rwkv_server.preflight.model import ModelInfo
from rwkv_server.settings import Settings, Stack
from rwkv_server.states import environment
from rwkv_server.states.environment import Environment
from rwkv_server.states.record import Fingerprint
from rwkv_server.tokenizer import vocabulary

SHARED_MEMORY = Path("/dev/shm")
# vLLM's plugin for Ascend refuses connectors on these: "KV cache transfer is not supported".
WITHOUT_CONNECTOR = "ascend310p"


def slots_file(port: int) -> Path:
    """The file of snapshots; its port tells engines on one machine apart."""
    return SHARED_MEMORY / f"rwkv-states-{port}"


def socket_file(port: int) -> Path:
    """Where workers tell of requests that ended."""
    return SHARED_MEMORY / f"rwkv-states-{port}.socket"


def are_offered(stack: Stack) -> bool:
    """Whether vLLM takes a connector on this hardware."""
    return not any(chip.lower().startswith(WITHOUT_CONNECTOR) for chip in stack.runtime.chip)


def remove_files(port: int) -> None:
    """Give back the memory of a child that has ended."""
    for path in (slots_file(port), socket_file(port)):
        path.unlink(missing_ok=True)


def build_environment(settings: Settings, model: ModelInfo, hostname: str) -> Environment:
    """What the API process needs to know of this pod.

    Weights in fewer bits are another function of the same states, so their scheme is part of whose
    states these are.
    """
    engine, port = settings.engine, settings.http.port
    return Environment(
        shm=slots_file(port),
        socket=socket_file(port),
        ranks=engine.tensor_parallel_size,
        model=model.path,
        dtype=model.dtype,
        max_model_len=settings.model.max_model_len,
        vocabulary=model.vocab_size,
        # The last row of an embedding is mostly padding; it is never read where it stands.
        placeholder=model.vocab_size - 1,
        namespace=settings.deployment.namespace,
        name=settings.deployment.name,
        ordinal=parse_ordinal(hostname),
        fingerprint=Fingerprint(
            model=model.digest,
            tokenizer=digest_tokenizer(model),
            layout=state_layout.LAYOUT_VERSION,
            dtype=model.dtype,
            adapters="" if engine.quantization == "None" else engine.quantization,
        ),
        state=settings.state,
    )


def child_variables(told: Environment) -> dict[str, str]:
    """The child's variables, with a signing key of its own for each start."""
    return {
        environment.VARIABLE: told.model_dump_json(by_alias=True),
        environment.KEY_VARIABLE: secrets.token_hex(32),
    }


def parse_ordinal(hostname: str) -> int:
    """A StatefulSet's pod ends in its number; anything else is alone, and number 0."""
    found = re.fullmatch(r".*-([0-9]{1,5})", hostname)
    return int(found[1]) if found else 0


def digest_tokenizer(model: ModelInfo) -> str:
    """What token ids mean."""
    if model.world:
        return f"{vocabulary.MODE}-{vocabulary.LARGEST}"
    content = (model.path / file_names.TOKENIZER).read_bytes()
    return f"sha256:{hashlib.sha256(content).hexdigest()}"

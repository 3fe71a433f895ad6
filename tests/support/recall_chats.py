"""Asks the probes of `tiny_recall` through vLLM's chat interface, as a client's messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from vllm import LLM, SamplingParams

from rwkv_server.model import config, state_layout
from tiny_recall import probes

SLOTS = 32


def start(model: Path, additional_config: dict[str, str] | None = None) -> LLM:
    parsed = config.parse_config(json.loads((model / "config.json").read_text()))
    return LLM(
        model=str(model),
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=SLOTS,
        max_num_batched_tokens=2048,
        enable_prefix_caching=False,
        enforce_eager=True,
        kv_cache_memory_bytes=state_layout.cache_bytes(parsed, "float32", SLOTS),
        num_gpu_blocks_override=SLOTS + 1,
        distributed_executor_backend="uni",
        additional_config=additional_config or {},
    )


def ask(
    engine: LLM, chats: Sequence[Sequence[probes.Message]], sampling: SamplingParams | None = None
) -> list[str]:
    """Return the replies as they are, with the leading space; greedy unless told otherwise."""
    sampling = sampling or SamplingParams(temperature=0, max_tokens=120)
    outputs = engine.chat([list(chat) for chat in chats], sampling, use_tqdm=False)
    return [output.outputs[0].text for output in outputs]

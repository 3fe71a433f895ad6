"""vLLM engines of several ranks: real worker processes, as many as a pod would have."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inproc_engine import greedy
from vllm import LLM

CACHE_BYTES = 4 << 20


@dataclass(frozen=True)
class Ranks:
    """How a model is divided."""

    tensor: int = 1
    pipeline: int = 1

    def __str__(self) -> str:
        return f"TP{self.tensor}xPP{self.pipeline}"


@contextlib.contextmanager
def start(
    model: Path, ranks: Ranks, kv_transfer_config: dict[str, Any] | None = None
) -> Iterator[LLM]:
    """An fp32 engine; its workers end with the block."""
    llm = LLM(
        model=str(model),
        dtype="float32",
        max_model_len=512,
        max_num_seqs=4,
        max_num_batched_tokens=32,
        enable_chunked_prefill=True,
        enable_prefix_caching=False,
        # vLLM makes a later pipeline rank's receive buffers in a warm-up that eager mode, also by
        # TORCH_COMPILE_DISABLE, leaves out on CPUs; without them the first step fails.
        enforce_eager=ranks.pipeline == 1,
        kv_cache_memory_bytes=CACHE_BYTES,
        tensor_parallel_size=ranks.tensor,
        pipeline_parallel_size=ranks.pipeline,
        distributed_executor_backend="mp",
        kv_transfer_config=kv_transfer_config,
    )
    try:
        yield llm
    finally:
        llm.llm_engine.model_executor.shutdown()


def generate(llm: LLM, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    """Greedy tokens, all prompts at once."""
    inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
    done = llm.generate(inputs, greedy(max_tokens), use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in done]

"""vLLM engines of several ranks: real worker processes, as many as a pod would have."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from inproc_engine import greedy
from vllm import LLM

CACHE_BYTES = 4 << 20
HEAVY = ["vllm.v1.executor.multiproc_executor", "vllm.v1.worker.cpu_worker"]


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
    with _forked_workers():
        llm = LLM(
            model=str(model),
            dtype="float32",
            max_model_len=512,
            max_num_seqs=4,
            max_num_batched_tokens=32,
            enable_chunked_prefill=True,
            enable_prefix_caching=False,
            # vLLM makes a later pipeline rank's receive buffers in a warm-up that eager mode, also
            # by TORCH_COMPILE_DISABLE, leaves out on CPUs; without them the first step fails.
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


@contextlib.contextmanager
def _forked_workers() -> Iterator[None]:
    """All workers fork from one process that has vLLM; each would import it for itself."""
    multiprocessing.set_forkserver_preload(HEAVY)
    chosen = multiprocessing.get_context

    def get_context(method: str | None = None) -> Any:
        return chosen("forkserver" if method == "spawn" else method)

    with mock.patch.object(multiprocessing, "get_context", get_context):
        yield


def generate(llm: LLM, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    """Greedy tokens, all prompts at once."""
    inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
    done = llm.generate(inputs, greedy(max_tokens), use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in done]

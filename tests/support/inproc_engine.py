"""A vLLM engine inside the test's own process, so that its logits and state slots can be seen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm import LLM, SamplingParams

from rwkv_server.model import state_layout
from rwkv_server.model.config import RWKV7Config, parse_config
from rwkv_server.parent import args

# What vLLM sizes its buffers for; a test can ask for less at any time.
MOST_ROWS = 64


# Logits of each row that a request was given, by its name.
Seen = dict[str, list[torch.Tensor]]


@dataclass(frozen=True)
class Answer:
    """What one prompt got: greedy tokens and the logits each was chosen from."""

    tokens: list[int]
    logits: torch.Tensor


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


class Engine:
    """An engine with few slots and a small token budget, so that steps are mixed."""

    def __init__(
        self,
        model: Path,
        *,
        slots: int = 4,
        budget: int = 32,
        dtype: str = "float32",
        additional_config: dict[str, Any] | None = None,
        kv_transfer_config: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.config: RWKV7Config = parse_config(json.loads((model / "config.json").read_text()))
        self.slots = slots
        defaults: dict[str, Any] = {
            "max_model_len": 2304,
            "enable_prefix_caching": False,
            "num_gpu_blocks_override": slots + 1,
        }
        self.llm = LLM(
            model=str(model),
            dtype=dtype,
            max_num_seqs=slots,
            max_num_batched_tokens=max(budget, MOST_ROWS),
            enable_chunked_prefill=True,
            enforce_eager=True,
            kv_cache_memory_bytes=state_layout.cache_bytes(self.config, dtype, slots),
            distributed_executor_backend="uni",
            additional_config=additional_config or {},
            kv_transfer_config=kv_transfer_config,
            logits_processors=[args.LOGITS_PROCESSORS["cpu"]],
            **(defaults | options),
        )
        self.runner: Any = self.llm.llm_engine.model_executor.driver_worker.model_runner
        self.scheduler: Any = self.llm.llm_engine.engine_core.engine_core.scheduler
        self.budget = budget
        self.seen: Seen = {}
        self._compute_logits = self.runner.model.compute_logits
        self.runner.model.compute_logits = self._record

    @property
    def runs_on_torch(self) -> bool:
        """Whether no C++ library computes the blocks."""
        return self.runner.model.model.blocks[0].stack is None

    @property
    def budget(self) -> int:
        """Tokens that a step may have; can be changed between steps, up to `MOST_ROWS`."""
        return self.scheduler.max_num_scheduled_tokens

    @budget.setter
    def budget(self, tokens: int) -> None:
        self.scheduler.max_num_scheduled_tokens = tokens

    def _record(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._compute_logits(hidden)
        names = self.runner.input_batch.req_ids
        for name, row in zip(names, logits.clone(), strict=True):
            self.seen.setdefault(name.partition("-")[0], []).append(row)
        return logits

    def generate(
        self,
        prompts: list[list[int]],
        max_tokens: int = 64,
        params: list[SamplingParams] | None = None,
    ) -> list[Answer]:
        """All prompts at once; the scheduler mixes reading and writing as it likes."""
        self.seen.clear()
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        done = self.llm.generate(inputs, params or greedy(max_tokens), use_tqdm=False)
        return [self._answer(output) for output in done]

    def _answer(self, output: Any) -> Answer:
        tokens = list(output.outputs[0].token_ids)
        # A prompt read in several steps has a row for each; only the last ones were sampled.
        rows = self.seen[output.request_id.partition("-")[0]][-len(tokens) :]
        return Answer(tokens, torch.stack(rows))

    def states(self) -> list[tuple[torch.Tensor, ...]]:
        """Every layer's slots: (time_shift, wkv, channel_shift), slot first."""
        return [layer.kv_cache for layer in self.runner.model.model.layers]

    def poison(self) -> None:
        """Fill every slot of every state with NaN."""
        for layer in self.states():
            for state in layer:
                state.fill_(float("nan"))

"""Decaying penalties for vLLM's model runner V2 (`DecayV2`), which serves NVIDIA devices.

V2 has its own seeds and a nucleus without a sort, so nothing else is taken over. Tested with
vLLM's tensors replaced by plain ones; not yet run on a device.
"""

from __future__ import annotations

import numpy as np
import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.worker.gpu.sample.logits_processor import (
    LogitsContext,
    LogitsProcessor,
    LogitsProcRequestState,
)

from rwkv_server.sampling.choice import check_seed, read_decay
from rwkv_server.sampling.decay import give_back


class DecayV2(LogitsProcessor):
    """Gives back what vLLM's frequency penalty takes too much."""

    def __init__(self, vllm_config: VllmConfig, req_states: LogitsProcRequestState) -> None:
        """Keep two numbers for each of vLLM's request slots."""
        super().__init__(vllm_config, req_states)
        self._states = req_states
        self._rates = np.zeros((req_states.max_num_reqs, 2), dtype=np.float32)
        self._rates[:, 0] = 1
        self._on_device = torch.from_numpy(self._rates).to(req_states.device)
        self._changed = False

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a `penalty_decay` that makes no sense, and seeds that V2 has no room for."""
        read_decay(sampling_params.extra_args)
        check_seed(sampling_params.seed, sampling_params.n)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Take over a slot; whether anything decays for its request."""
        decay = read_decay(sampling_params.extra_args)
        self._rates[req_idx] = decay, sampling_params.frequency_penalty
        self._changed = True
        return bool(self._decays(np.array([req_idx])))

    def apply_staged_writes(self) -> None:
        """Bring the rates of new requests to the device, as a copy that later ones can't touch."""
        if self._changed:
            self._on_device = torch.from_numpy(self._rates.copy()).to(self._states.device)
            self._changed = False

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """Correct the rows of all requests; those without decay get zeros."""
        if not self._decays(ctx.idx_mapping_np):
            return logits
        slots = ctx.expanded_idx_mapping.long()
        longest = int(ctx.seq_lens_upper_bound_np.max())
        places = torch.arange(longest, device=logits.device)
        ages = ctx.pos.long()[:, None] - places
        prompt = self._states.prompt_len.gpu[slots].long()[:, None]
        ages = ages.where(places >= prompt, -1)
        tokens = self._states.all_token_ids.gpu[slots, :longest].long()
        decay, frequency = self._on_device[slots].unbind(1)
        give_back(logits, tokens.where(ages >= 0, 0), ages, decay, frequency)
        return logits

    def _decays(self, slots: np.ndarray) -> bool:
        rates = self._rates[slots]
        return bool(((rates[:, 0] != 1) & (rates[:, 1] != 0)).any())

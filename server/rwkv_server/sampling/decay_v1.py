"""Decaying penalties on accelerators that vLLM serves with model runner V1 (`DecayV1`): Ascend.

Tested on the CPU; not yet run on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from rwkv_server.sampling.choice import read_decay
from rwkv_server.sampling.decay import give_back

Row = Callable[[Sequence[int], torch.Tensor], torch.Tensor]


class DecayV1(AdapterLogitsProcessor):
    """Gives back what vLLM's frequency penalty takes too much."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a `penalty_decay` that makes no sense."""
        read_decay(sampling_params.extra_args)

    def is_argmax_invariant(self) -> bool:
        """Never: a penalty changes which token is the likeliest."""
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Row | None:
        """What runs on the request's row at each step; None where nothing decays."""
        decay, frequency = read_decay(params.extra_args), params.frequency_penalty
        return None if decay == 1 or frequency == 0 else _row(decay, frequency)


def _row(decay: float, frequency: float) -> Row:
    def change(answer: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        tokens = torch.tensor([answer], dtype=torch.int64, device=logits.device)
        places = torch.arange(len(answer), device=logits.device)
        # Asynchronous scheduling writes -1 for a token that isn't known yet.
        ages = (len(answer) - 1 - places).where(tokens >= 0, -1)
        rates = logits.new_tensor([[decay], [frequency]])
        give_back(logits[None], tokens.clamp(min=0), ages, *rates)
        return logits

    return change

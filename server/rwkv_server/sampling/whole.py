"""Chooses the token on the CPU, in place of vLLM's sampler (`WholeSampler`, model runner V1).

vLLM sorts the whole vocabulary for top_p, builds dense tensors for penalties, and its seeded
generators end the engine when a prompt is read in parts. A logits processor may do all that better,
but it only changes logits. So at admission a request's wishes move into its extra arguments and
vLLM is left with a greedy request; at each step all logits but the drawn token's are masked.

Everything that vLLM does before stays: allowed tokens, bad words, grammars, logit_bias and
min_tokens come earlier, and returned logprobs are those of the model. `seed` stays where it is:
a greedy request gets no generator, and vLLM gives each of `n` answers a seed of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from rwkv_server.sampling.choice import Choice, Penalties, read_decay
from rwkv_server.sampling.draw import draw_token
from rwkv_server.sampling.random_bits import uniforms
from rwkv_server.sampling.seen_tokens import SeenTokens

MOVED = "rwkv_sampling"
SEED_BITS = 62

Row = Callable[[Sequence[int], Sequence[int], torch.Tensor], torch.Tensor]


class WholeSampler(AdapterLogitsProcessor):
    """Penalties and the draw, one request at a time."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Move what concerns the choice of tokens to where vLLM's sampler doesn't look.

        vLLM calls this once for each request, before it copies the parameters for the engine. A
        caller in this process may hand in the same object again.
        """
        extra = sampling_params.extra_args or {}
        if _moved(sampling_params) is None:
            choice, penalties = _read(sampling_params)
            if choice.temperature > 0 or penalties.any:
                moved = {"choice": asdict(choice), "penalties": asdict(penalties)}
                sampling_params.extra_args = {**extra, MOVED: moved}
                _neutralize(sampling_params)

    def is_argmax_invariant(self) -> bool:
        """Never: vLLM sees greedy requests only, and those are what is to change."""
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> Row | None:
        """What runs on the request's row at each step; None for a plainly greedy request."""
        moved = _moved(params)
        if moved is None:
            return None
        seed = params.seed
        if seed is None:
            # Every rank draws the same: vLLM seeds all of them alike.
            seed = int(torch.randint(1 << SEED_BITS, (), device="cpu"))
        return _row(Choice(**moved["choice"]), Penalties(**moved["penalties"]), seed)


def _row(choice: Choice, penalties: Penalties, seed: int) -> Row:
    seen: SeenTokens | None = None

    def change(prompt: Sequence[int], answer: Sequence[int], logits: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        if penalties.any:
            seen = seen or SeenTokens(penalties, prompt)
            seen.penalize(logits, answer)
        if choice.temperature > 0:
            token = draw_token(logits, choice, uniforms(seed, len(answer)))
            if token is not None:
                row = logits.numpy()
                row.fill(-np.inf)
                row[token] = 0
        return logits

    return change


def _moved(params: SamplingParams) -> dict[str, Any] | None:
    """What was moved. Clients can put text, numbers and lists there, but no mapping."""
    found = (params.extra_args or {}).get(MOVED)
    return found if isinstance(found, dict) else None


def _read(params: SamplingParams) -> tuple[Choice, Penalties]:
    choice = Choice(params.temperature, params.top_p, params.top_k, params.min_p)
    penalties = Penalties(
        presence=params.presence_penalty,
        frequency=params.frequency_penalty,
        repetition=params.repetition_penalty,
        decay=read_decay(params.extra_args),
    )
    return choice, penalties


def _neutralize(params: SamplingParams) -> None:
    params.temperature, params.top_p, params.top_k, params.min_p = 0.0, 1.0, 0, 0.0
    params.presence_penalty = params.frequency_penalty = 0.0
    params.repetition_penalty = 1.0
    # A deep copy is checked anew, and vLLM refuses a greedy request with n above 1. Requests that
    # come by HTTP have this set in any case.
    params.skip_clone = params.skip_clone or params.n > 1

"""Draw a token by temperature, min_p, top_k and top_p, without sorting the vocabulary.

The nucleus is never built. A token belongs to it when all likelier tokens together have less than
`top_p`, which is one sum. So a token is drawn from all of them; if it's outside, it and all that
are no likelier are outside, and the draw is repeated among the rest. What comes out is distributed
as a draw from the nucleus, after about two rounds.

Equally likely tokens are in the nucleus together or not at all, as in RWKV's own sampler.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch.nn import functional

from rwkv_server.sampling.choice import Choice

_BLOCK = 256


def draw_token(logits: torch.Tensor, choice: Choice, uniforms: Iterator[float]) -> int | None:
    """The token drawn from one row of `logits`, shape (vocabulary,), float32.

    None where there is nothing to draw from: no finite logit, or one that isn't a number.
    """
    scaled = logits if choice.temperature == 1 else logits / choice.temperature
    weights = _filter(torch.softmax(scaled, dim=-1), choice)
    sums = _block_sums(weights)
    mass = float(sums[-1])
    if not mass > 0:
        return None
    limit = choice.top_p * mass
    while True:
        token = _locate(weights, sums, next(uniforms) * mass)
        if choice.top_p >= 1:
            return token
        likelier = functional.threshold(weights, float(weights[token]), 0.0)
        sums = _block_sums(likelier)
        mass = float(sums[-1])
        if mass < limit:
            return token
        weights = likelier


def _filter(weights: torch.Tensor, choice: Choice) -> torch.Tensor:
    """Without the tokens that min_p and then top_k leave out."""
    if choice.min_p > 0:
        weights = torch.where(weights >= choice.min_p * weights.max(), weights, 0.0)
    if 0 < choice.top_k < len(weights):
        least = torch.topk(weights, choice.top_k, sorted=False).values.min()
        weights = torch.where(weights >= least, weights, 0.0)
    return weights


def _block_sums(weights: torch.Tensor) -> torch.Tensor:
    """Running totals over blocks of the vocabulary: far cheaper than one over each token."""
    size = math.gcd(len(weights), _BLOCK)
    return weights.view(-1, size).sum(1).cumsum(0, dtype=torch.float64)


def _locate(weights: torch.Tensor, sums: torch.Tensor, target: float) -> int:
    """The first token at which the running total of `weights` exceeds `target`."""
    size = len(weights) // len(sums)
    block = int(torch.searchsorted(sums, target, right=True))
    before = float(sums[block - 1]) if block else 0.0
    inside = weights[block * size : (block + 1) * size]
    running = inside.cumsum(0, dtype=torch.float64)
    place = int(torch.searchsorted(running, target - before, right=True))
    if place == size:  # The two totals round apart.
        place = int(inside.nonzero()[-1])
    return block * size + place

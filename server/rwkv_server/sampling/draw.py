"""Draw a token by temperature, min_p, top_k and top_p, without sorting the vocabulary.

The nucleus is never built. A token belongs to it when all likelier tokens together have less than
`top_p`, which is one sum. So a token is drawn from all of them; if it's outside, it and all that
are no likelier are outside, and the draw is repeated among the rest. What comes out is distributed
as a draw from the nucleus, after about two rounds.

Equally likely tokens are in the nucleus together or not at all, as in RWKV's own sampler.

NumPy and not torch: torch would share these short loops among its threads, and where cores are
busy each such sharing costs more than the loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from rwkv_server.sampling.choice import Choice

Floats = npt.NDArray[np.float32]
Sums = npt.NDArray[np.float64]

_BLOCK = 256
# The least normal number. Not asked of np.finfo: it warns where a process flushes subnormal ones.
_LEAST_SCALE = np.float32(2.0**-126)


def draw_token(logits: torch.Tensor, choice: Choice, uniforms: Iterator[float]) -> int | None:
    """The token drawn from one row of `logits`, shape (vocabulary,), float32 on the CPU.

    None where there is nothing to draw from: no finite logit, or one that isn't a number.
    """
    row = logits.numpy()
    most = row.max()
    if not np.isfinite(most):
        return None
    # Above 0 at any temperature: a masked token's -inf times 0 would be no number.
    scale = max(np.float32(1 / choice.temperature), _LEAST_SCALE)
    weights = _filter(np.exp((row - most) * scale), choice)
    sums = _block_sums(weights)
    mass = float(sums[-1])
    limit = choice.top_p * mass
    while True:
        token = _locate(weights, sums, next(uniforms) * mass)
        if choice.top_p >= 1:
            return token
        likelier = weights * (weights > weights[token])
        sums = _block_sums(likelier)
        mass = float(sums[-1])
        if mass < limit:
            return token
        weights = likelier


def _filter(weights: Floats, choice: Choice) -> Floats:
    """Without the tokens that min_p and then top_k leave out. The likeliest weighs 1."""
    if choice.min_p > 0:
        weights = weights * (weights >= np.float32(choice.min_p))
    if 0 < choice.top_k < len(weights):
        least = np.partition(weights, -choice.top_k)[-choice.top_k]
        weights = weights * (weights >= least)
    return weights


def _block_sums(weights: Floats) -> Sums:
    """Running totals over blocks of the vocabulary: far cheaper than one over each token."""
    size = math.gcd(len(weights), _BLOCK)
    sums: Sums = weights.reshape(-1, size).sum(1).cumsum(dtype=np.float64)
    return sums


def _locate(weights: Floats, sums: Sums, target: float) -> int:
    """The first token at which the running total of `weights` exceeds `target`."""
    size = len(weights) // len(sums)
    block = int(sums.searchsorted(target, side="right"))
    before = float(sums[block - 1]) if block else 0.0
    inside = weights[block * size : (block + 1) * size]
    place = int(inside.cumsum(dtype=np.float64).searchsorted(target - before, side="right"))
    if place == size:  # The two totals round apart.
        place = int(inside.nonzero()[0][-1])
    return block * size + place

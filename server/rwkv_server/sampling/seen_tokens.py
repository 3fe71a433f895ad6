"""Penalties on tokens that were seen, at a cost that grows with those and not with the vocabulary.

The rule is that of RWKV's own sampler: after each token all counts decay, then the new token's
grows by one; a token that was written loses `presence + count * frequency`. With decay 1 that is
OpenAI's rule. RWKV's sampler doesn't count digits and blanks; here they count.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rwkv_server.sampling.choice import Penalties


class SeenTokens:
    """The tokens that one request has seen.

    A request that is resumed counts its tokens again in the same order, so that its penalties are
    the same to the last bit.
    """

    def __init__(self, penalties: Penalties, prompt: Sequence[int]) -> None:
        """Start before the first token of an answer."""
        self._penalties = penalties
        self._taken = 0
        # All at once: other requests wait while a long prompt is looked at.
        known = list(dict.fromkeys(prompt)) if penalties.repetition != 1 else []
        self._places = {token: place for place, token in enumerate(known)}
        self._ids = torch.zeros(len(known) + 64, dtype=torch.int64)
        self._ids[: len(known)] = torch.tensor(known, dtype=torch.int64)
        self._counts = torch.zeros(len(self._ids))
        self._written = torch.zeros(len(self._ids))

    def penalize(self, logits: torch.Tensor, answer: Sequence[int]) -> None:
        """Change one row of `logits` in place; `answer` is all that was written so far."""
        for token in answer[self._taken :]:
            self._count(token)
        self._taken = len(answer)
        known = len(self._places)
        ids = self._ids[:known].to(logits.device)
        values = logits[ids]
        repetition = self._penalties.repetition
        if repetition != 1:
            values = torch.where(values > 0, values / repetition, values * repetition)
        lost = self._penalties.presence * self._written[:known]
        lost += self._penalties.frequency * self._counts[:known]
        logits[ids] = values - lost.to(logits.device)

    def _count(self, token: int) -> None:
        if self._penalties.decay != 1:
            self._counts *= self._penalties.decay
        place = self._place(token)
        self._counts[place] += 1
        self._written[place] = 1

    def _place(self, token: int) -> int:
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            self._ids = torch.cat([self._ids, torch.empty_like(self._ids)])
            self._counts = torch.cat([self._counts, torch.zeros_like(self._counts)])
            self._written = torch.cat([self._written, torch.zeros_like(self._written)])
        self._ids[place] = token
        return place

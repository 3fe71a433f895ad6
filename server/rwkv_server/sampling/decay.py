"""What a penalty that fades has lost: the correction to vLLM's own frequency penalty.

On accelerators vLLM applies its penalties in its own kernels, without decay. Added to the logits,
this gives back what should have faded. It keeps no state: a token's age is all that it asks.
"""

from __future__ import annotations

import torch


def give_back(
    logits: torch.Tensor,
    tokens: torch.Tensor,
    ages: torch.Tensor,
    decay: torch.Tensor,
    frequency: torch.Tensor,
) -> None:
    """Raise the logits of written tokens by `frequency * (1 - decay ** age)`, in place.

    Args:
        logits: (rows, vocabulary).
        tokens: (rows, places), any valid id where the age is negative.
        ages: (rows, places): how many tokens were written later; negative where there is none.
        decay: (rows,), from 0 to 1.
        frequency: (rows,).
    """
    faded = 1 - decay[:, None] ** ages.clamp(min=0)
    logits.scatter_add_(1, tokens, (frequency[:, None] * faded).to(logits.dtype) * (ages >= 0))

"""Turns dialogues into rows of ids and loss weights, in exactly the text of the chat template.

Id 0 is the end of a document, byte ``b`` is id ``b + 1``. Every row is one dialogue from a zero
state; after an end of document the rest of the row is padding with weight 0.
"""

import random
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tiny_recall import dialogues

END_OF_DOCUMENT = 0
CONTEXT = 0.05  # loss weight of text that the model only reads

Ids = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]


def build_row(
    rng: random.Random, length: int, mix: dialogues.Mix | None = None
) -> tuple[Ids, Weights]:
    """Build ids and loss weights, both of shape (length,)."""
    ids: list[int] = []
    weights: list[float] = []
    system = dialogues.generate_system_prompt(rng)
    if system is not None:
        _append(ids, weights, f"System: {system}\n\n", CONTEXT)
    for turn in dialogues.generate_turns(rng, mix):
        _append(ids, weights, f"User: {turn.user}\n\nAssistant:", CONTEXT)
        _append(ids, weights, " ", dialogues.TEXT)
        for text, weight in turn.reply:
            _append(ids, weights, text, weight)
        if turn.ends:
            ids.append(END_OF_DOCUMENT)
            weights.append(dialogues.TEXT)
            break
        _append(ids, weights, "\n", dialogues.TEXT)
        _append(ids, weights, "\n", CONTEXT)
        if len(ids) >= length:
            break
    missing = max(0, length - len(ids))
    row_ids = np.array(ids[:length] + [END_OF_DOCUMENT] * missing, dtype=np.int64)
    return row_ids, np.array(weights[:length] + [0.0] * missing, dtype=np.float32)


def build_batch(
    rng: random.Random, rows: int, length: int, mix: dialogues.Mix | None = None
) -> tuple[Ids, Weights]:
    """Build ids and loss weights, both of shape (rows, length)."""
    built = [build_row(rng, length, mix) for _ in range(rows)]
    return np.stack([ids for ids, _ in built]), np.stack([weights for _, weights in built])


def encode(text: str) -> list[int]:
    """Return the ids of a text."""
    return [byte + 1 for byte in text.encode()]


def decode(ids: Iterable[int]) -> str:
    """Return the text of ids; ids that are no byte have none."""
    return bytes(i - 1 for i in ids if 1 <= i <= 256).decode(errors="replace")


def _append(ids: list[int], weights: list[float], text: str, weight: float) -> None:
    new = encode(text)
    ids.extend(new)
    weights.extend([weight] * len(new))

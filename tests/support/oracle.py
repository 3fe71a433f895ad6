"""The official implementation (PyPI `rwkv`, fp32 on the CPU) as a judge of answers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import fla_to_pth
import torch
from rwkv.model import RWKV


@dataclass(frozen=True)
class Verdict:
    """How an answer compares: tokens before the first difference, least cosine of the logits."""

    agreed: int
    cosine: float


class Oracle:
    """Wraps the official model of one checkpoint."""

    def __init__(self, model: Path, folder: Path) -> None:
        pth = fla_to_pth.write_pth(model, folder / "model.pth")
        self.model = RWKV(model=str(pth.with_suffix("")), strategy="cpu fp32")
        pth.unlink()

    def judge(self, prompt: list[int], tokens: list[int], logits: torch.Tensor) -> Verdict:
        """Compare greedy `tokens`, each chosen from its row of `logits`.

        The official model reads prompt and tokens in one go. While its own choice equals the
        token at every place, it has generated those tokens; the first place where it doesn't is
        where its own generation would differ.
        """
        last = len(prompt) - 1
        everything = prompt + tokens[:-1]
        state = None
        if len(everything) > 1:
            rows, _ = self.model.forward(everything, state, full_output=True)
        else:
            rows = self.model.forward(everything, state)[0][None]
        wanted = rows[last:]
        same = wanted.argmax(-1) == torch.tensor(tokens)
        agreed = len(tokens) if bool(same.all()) else int((~same).int().argmax())
        cosine = torch.nn.functional.cosine_similarity(wanted.double(), logits.double(), dim=-1)
        return Verdict(agreed, float(cosine.min()))

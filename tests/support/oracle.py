"""Two independent implementations, fp32 on the CPU, as judges of answers.

`Official` is PyPI `rwkv`, the model's own authors'; `Another` is PyPI `rwkv7-hf`, of other authors
and structured otherwise. Neither shares code with ours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fla_to_pth
import torch
from rwkv.model import RWKV
from safetensors.torch import load_file

if TYPE_CHECKING:
    from inproc_engine import Answer


@dataclass(frozen=True)
class Verdict:
    """How an answer compares: tokens before the first difference, least cosine of the logits."""

    agreed: int
    cosine: float


class Oracle:
    """Judges by what `read` of a subclass says: each token's logits, (tokens, vocabulary)."""

    def read(self, tokens: list[int]) -> torch.Tensor:
        raise NotImplementedError

    def judge(self, prompt: list[int], tokens: list[int], logits: torch.Tensor) -> Verdict:
        """Compare greedy `tokens`, each chosen from its row of `logits`.

        The oracle reads prompt and tokens in one go. While its own choice equals the token at every
        place, it has generated those tokens; the first place where it doesn't is where its own
        generation would differ.
        """
        wanted = self.read(prompt + tokens[:-1])[len(prompt) - 1 :]
        same = wanted.argmax(-1) == torch.tensor(tokens)
        agreed = len(tokens) if bool(same.all()) else int((~same).int().argmax())
        cosine = torch.nn.functional.cosine_similarity(wanted.double(), logits.double(), dim=-1)
        return Verdict(agreed, float(cosine.min()))


class Official(Oracle):
    """The official model of one checkpoint."""

    def __init__(self, model: Path, folder: Path) -> None:
        pth = fla_to_pth.write_pth(model, folder / "model.pth")
        self.model = RWKV(model=str(pth.with_suffix("")), strategy="cpu fp32")
        pth.unlink()

    def read(self, tokens: list[int]) -> torch.Tensor:
        if len(tokens) > 1:
            return self.model.forward(tokens, None, full_output=True)[0]
        return self.model.forward(tokens, None)[0][None]


class Another(Oracle):
    """rwkv7-hf's model of the same checkpoint."""

    def __init__(self, model: Path) -> None:
        import rwkv7_hf

        config = rwkv7_hf.RWKV7Config(**json.loads((model / "config.json").read_text()))
        self.model = rwkv7_hf.RWKV7ForCausalLM(config)
        weights = {n: t.float() for n, t in load_file(model / "model.safetensors").items()}
        weights.setdefault("lm_head.weight", weights["model.embeddings.weight"])  # a tied head
        self.model.load_state_dict(weights)
        self.model.eval()

    @torch.no_grad()
    def read(self, tokens: list[int]) -> torch.Tensor:
        return self.model(input_ids=torch.tensor([tokens])).logits[0]


def check(
    oracles: Sequence[Oracle],
    prompts: Sequence[list[int]],
    answers: Sequence[Answer],
    cosine: float = 0.999999,
) -> None:
    """Every greedy token as each oracle says, every row of logits within `cosine`."""
    for oracle in oracles:
        for prompt, answer in zip(prompts, answers, strict=True):
            verdict = oracle.judge(prompt, answer.tokens, answer.logits)
            told = (type(oracle).__name__, len(prompt), verdict)
            assert verdict.agreed == len(answer.tokens) and verdict.cosine >= cosine, told

"""Our own plain torch reference against the official implementation and against the engine."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file

from rwkv_server.model import reference

if TYPE_CHECKING:
    from inproc_engine import Engine
    from oracle import Oracle

PROMPT = [random.Random(2).randrange(1, 256) for _ in range(40)]


def test_three_independent_implementations_agree(
    tiny: Engine, tiny_model: Path, tiny_oracle: Oracle
) -> None:
    tensors = {n: t.float() for n, t in load_file(tiny_model / "model.safetensors").items()}
    (answer,) = tiny.generate([PROMPT], max_tokens=24)
    state = reference.new_state(tiny.config, torch.float32)
    rows = reference.forward(tiny.config, tensors, PROMPT + answer.tokens[:-1], state)
    rows = rows[len(PROMPT) - 1 :]
    assert rows.argmax(-1).tolist() == answer.tokens
    for logits in (rows, answer.logits):
        verdict = tiny_oracle.judge(PROMPT, answer.tokens, logits)
        assert verdict.agreed == 24
        assert verdict.cosine >= 0.999999

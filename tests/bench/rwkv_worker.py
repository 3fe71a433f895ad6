"""Runs the official implementation (PyPI `rwkv`) beside our engine, one sequence at a time."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from rwkv.model import RWKV
from worker_loop import WARM_STEPS, prompt, serve


class Official:
    """One model of PyPI `rwkv` in one dtype."""

    def __init__(self, model: str, strategy: str) -> None:
        self.model = RWKV(model=model, strategy=strategy)

    def decode(self, batch: int, steps: int) -> dict[str, Any]:
        """Time greedy steps of the one sequence it can run."""
        if batch != 1:
            raise ValueError(f"rwkv decodes one sequence, not {batch}")
        logits, state = self.model.forward(prompt(0), None)
        tokens = [int(logits.argmax())]
        started = time.perf_counter()
        for step in range(WARM_STEPS + steps):
            if step == WARM_STEPS:
                started = time.perf_counter()
            logits, state = self.model.forward([tokens[-1]], state)
            tokens.append(int(logits.argmax()))
        return {"seconds": time.perf_counter() - started, "tokens": tokens}

    def prefill(self, length: int) -> dict[str, Any]:
        """Time a prompt until its first answer token."""
        tokens = prompt(0, length)
        started = time.perf_counter()
        logits, _ = self.model.forward(tokens, None)
        int(logits.argmax())
        return {"seconds": time.perf_counter() - started}


def main() -> None:
    """Arguments: the .pth without its suffix, fp32 or bf16."""
    path, dtype = sys.argv[1:]

    def commands() -> dict[str, Any]:
        torch.set_grad_enabled(False)
        official = Official(path, f"cpu {dtype}")
        return {"decode": official.decode, "prefill": official.prefill}

    serve(commands)


if __name__ == "__main__":
    main()

"""The trainer of the bundled model: its kernel's gradient, its forward, and a few steps of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import numpy as safetensors_numpy

from tiny_recall import model, reference, rows, wkv

pytestmark = pytest.mark.engine

IMAGE = Path(model.__file__).parents[1]


def inputs(dtype: torch.dtype, time: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)

    def draw(scale: float) -> torch.Tensor:
        shape = (2, time, 2, wkv.HEAD)
        return torch.randn(shape, generator=generator, dtype=torch.float64) * scale

    r, k, v = draw(1), draw(0.3), draw(1)
    w = 0.545 + 0.45 * torch.sigmoid(draw(1))
    kk = torch.nn.functional.normalize(draw(1), dim=-1)
    b = kk * torch.sigmoid(draw(1))
    return [tensor.to(dtype).requires_grad_() for tensor in (r, w, k, v, -kk, b)]


@pytest.mark.parametrize("time", [1, 16, 37])
def test_kernel_and_its_gradient_match_float64(time: int) -> None:
    exact, fast = inputs(torch.float64, time), inputs(torch.float32, time)
    wanted, found = wkv.wkv_reference(*exact), wkv.wkv(*fast)
    upstream = torch.randn(wanted.shape, dtype=torch.float64)
    wanted.backward(upstream)
    found.backward(upstream.float())
    pairs = [(wanted, found)]
    pairs += [(e.grad, f.grad) for e, f in zip(exact, fast, strict=True)]
    for want, have in pairs:
        # fp32 rounding over at most 37 steps
        assert (want - have).norm() <= 2e-6 * want.norm() + 1e-9


def test_whole_rows_give_the_logits_of_the_step_by_step_reference(tiny_model: Path) -> None:
    weights = safetensors_numpy.load_file(tiny_model / "model.safetensors")
    network = model.TinyRwkv(model.Shape())
    network.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
    ids, _ = rows.build_batch(random.Random(3), 2, 100)
    with torch.no_grad():
        whole = network(torch.from_numpy(ids)).numpy()
    judge = reference.Reference(weights)
    state = judge.zero_state(2)
    steps = np.stack([judge.step(ids[:, t], state) for t in range(ids.shape[1])], axis=1)
    assert np.abs(whole - steps).max() < 1e-3
    assert (whole.argmax(-1) == steps.argmax(-1)).all()


def test_smoke_training_writes_a_complete_model(tmp_path: Path) -> None:
    command = [sys.executable, str(IMAGE / "train_tiny.py"), "--smoke", "--out", str(tmp_path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout[done.stdout.index("{") :])
    assert figures["tokens"] > 0 and figures["recall"] == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]

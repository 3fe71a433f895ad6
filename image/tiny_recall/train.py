"""The training loop: a schedule in steps, so that a seed gives the same run on any machine."""

import math
import pathlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from tiny_recall import dialogues, initial, model, rows


@dataclass(frozen=True)
class Stage:
    """From this fraction of the steps on: so many rows of so many ids."""

    start: float
    length: int
    rows: int


@dataclass(frozen=True)
class Phase:
    """A run of the optimizer with its own learning rate and dialogues."""

    steps: int
    rate: float
    stages: tuple[Stage, ...]
    mix: dialogues.Mix


FIRST = Phase(
    steps=9000,
    rate=3e-3,
    stages=(
        Stage(0.0, 128, 32),
        Stage(0.06, 256, 16),
        Stage(0.18, 448, 10),
        Stage(0.42, 768, 6),
        Stage(0.75, 960, 5),
    ),
    mix=dialogues.Mix(),
)
SECOND = Phase(
    steps=4500,
    rate=1.6e-3,
    stages=(Stage(0.0, 768, 6), Stage(0.6, 960, 5)),
    mix=dialogues.Mix(hard=True, ask=0.5, small_talk=0.17),
)
THIRD = Phase(
    steps=2400,
    rate=1.2e-3,
    stages=(Stage(0.0, 960, 5),),
    mix=dialogues.Mix(hard=True, ask=0.5, small_talk=0.2),
)


@dataclass(frozen=True)
class Plan:
    """Everything that a run depends on, beside the code."""

    seed: int = 7
    phases: tuple[Phase, ...] = (FIRST, SECOND, THIRD)
    warm_up: int = 150
    last_rate: float = 0.03
    weight_decay: float = 0.05
    clip: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """The trained network and what the run took."""

    network: model.TinyRwkv
    tokens: int
    wall_seconds: float
    cpu_seconds: float


def train(plan: Plan, report: Callable[[str], None], checkpoint: pathlib.Path | None) -> Outcome:
    """Train from nothing; every 100 steps one line is reported, every 500 a checkpoint is kept."""
    torch.manual_seed(plan.seed)
    network = model.TinyRwkv(model.Shape())
    initial.init_weights(network)
    started, cpu_started, tokens = time.monotonic(), time.process_time(), 0
    for index in range(len(plan.phases)):
        tokens += run_phase(network, plan, index, report, checkpoint)
    return Outcome(network, tokens, time.monotonic() - started, time.process_time() - cpu_started)


def run_phase(
    network: model.TinyRwkv,
    plan: Plan,
    index: int,
    report: Callable[[str], None],
    checkpoint: pathlib.Path | None,
) -> int:
    """Run one phase on a network and return the number of tokens it saw."""
    phase = plan.phases[index]
    rng = random.Random(plan.seed + index)
    optimizer = _build_optimizer(network, plan)
    started, tokens = time.monotonic(), 0
    for step in range(phase.steps):
        stage = _stage_at(phase, step)
        ids, weights = rows.build_batch(rng, stage.rows, stage.length + 1, phase.mix)
        tokens += ids.size
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(plan, phase, step)
        loss, recalled = _take_step(network, optimizer, plan, ids, weights)
        if (step + 1) % 100 == 0 or step + 1 == phase.steps:
            elapsed = time.monotonic() - started
            report(
                f"phase {index + 1} step {step + 1}/{phase.steps} length {stage.length} "
                f"loss {loss:.4f} answer bytes right {recalled:.4f} "
                f"{tokens / elapsed:.0f} tok/s {elapsed:.0f} s"
            )
        if checkpoint is not None and (step + 1) % 500 == 0:
            torch.save(network.state_dict(), checkpoint)
    return tokens


def learning_rate(plan: Plan, phase: Phase, step: int) -> float:
    """Return the rate of a step: linear warm-up, then a cosine down to the last rate."""
    if step < plan.warm_up:
        return phase.rate * (step + 1) / plan.warm_up
    done = (step - plan.warm_up) / max(1, phase.steps - plan.warm_up)
    shape = 0.5 * (1 + math.cos(math.pi * done))
    return phase.rate * (plan.last_rate + (1 - plan.last_rate) * shape)


def _stage_at(phase: Phase, step: int) -> Stage:
    return [stage for stage in phase.stages if stage.start * phase.steps <= step][-1]


def _build_optimizer(network: model.TinyRwkv, plan: Plan) -> torch.optim.Optimizer:
    decayed: list[torch.Tensor] = []
    others: list[torch.Tensor] = []
    for name, parameter in network.named_parameters():
        is_matrix = parameter.ndim == 2 and "lora" not in name and "r_k" not in name
        (decayed if is_matrix else others).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": plan.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-12, fused=True)


def _take_step(
    network: model.TinyRwkv,
    optimizer: torch.optim.Optimizer,
    plan: Plan,
    ids: rows.Ids,
    weights: rows.Weights,
) -> tuple[float, float]:
    source = torch.from_numpy(ids[:, :-1])
    target = torch.from_numpy(ids[:, 1:]).reshape(-1)
    weight = torch.from_numpy(weights[:, 1:]).reshape(-1)
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(source).flatten(0, 1)
    losses = functional.cross_entropy(logits.float(), target, reduction="none")
    loss = (losses * weight).sum() / weight.sum()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), plan.clip)
    optimizer.step()
    asked = weight == dialogues.ANSWER_VALUE
    right = (logits.detach()[asked].argmax(-1) == target[asked]).float().mean()
    return float(loss.detach()), float(right)

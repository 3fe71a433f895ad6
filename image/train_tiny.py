"""Trains, exports and evaluates the bundled model: ``python image/train_tiny.py``.

Needs torch, numpy, safetensors, jinja2 and a C++ compiler; two CPU cores and half an hour.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
# Read when the process starts: glibc must not give memory back between steps, and OpenMP threads
# must not spin while another process or the WKV kernel's own threads want the core.
ENVIRONMENT = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "268435456",
    "OMP_WAIT_POLICY": "PASSIVE",
}


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "models" / "tiny-recall")
    parser.add_argument("--figures", type=pathlib.Path, help="write the measured figures here")
    parser.add_argument("--seed", type=int, help="training seed (default: the shipped model's)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--probes", type=int, default=200, help="probes of the evaluation")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="keep the latest weights here")
    parser.add_argument("--smoke", action="store_true", help="a few steps, to see that it runs")
    parser.add_argument("--evaluate", action="store_true", help="only evaluate the model in --out")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Train unless told not to, evaluate, print the figures."""
    options = parse_arguments(arguments)
    figures: dict[str, object] = {}
    if not options.evaluate:
        figures.update(_train(options))
    from tiny_recall import evaluate

    figures.update(evaluate.evaluate(options.out, options.probes, seed=2026))
    text = json.dumps(figures, indent=2, ensure_ascii=False)
    if options.figures:
        options.figures.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


def _train(options: argparse.Namespace) -> dict[str, object]:
    import torch

    from tiny_recall import export, train

    torch.set_num_threads(options.threads)
    plan = train.Plan()
    if options.smoke:
        stages = (train.Stage(0.0, 64, 2), train.Stage(0.5, 128, 2))
        phases = [dataclasses.replace(phase, steps=4, stages=stages) for phase in plan.phases]
        plan = dataclasses.replace(plan, phases=tuple(phases))
        options.probes = min(options.probes, 2)
    if options.seed is not None:
        plan = dataclasses.replace(plan, seed=options.seed)
    outcome = train.train(plan, lambda line: print(line, flush=True), options.checkpoint)
    export.export(outcome.network, options.out)
    return {
        "steps": [phase.steps for phase in plan.phases],
        "training_seed": plan.seed,
        "tokens": outcome.tokens,
        "wall_seconds": round(outcome.wall_seconds, 1),
        "cpu_seconds": round(outcome.cpu_seconds, 1),
    }


if __name__ == "__main__":
    if any(os.environ.get(name) is None for name in ENVIRONMENT):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**ENVIRONMENT, **os.environ})
    sys.exit(main(sys.argv[1:]))

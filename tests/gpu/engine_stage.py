"""vLLM's engine on the device with steps recorded: parity on tiny-recall, then tokens a second.

Also a program, so that each engine has a process of its own:
`engine_stage.py parity|SIZE` prints `results: ` and one JSON list.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

Row = dict[str, Any]

HERE = Path(__file__).resolve().parent
MARK = "results: "
LENGTHS = (1, 2, 17, 40, 200)
NEW_TOKENS = 32
BATCHES = (1, 32, 320)
SIZES = (1, 4, 16, 32)  # of recorded steps, beside the largest one


def run_apart(what: str, limit: float) -> list[Row]:
    """The rows of a process that runs `what`; one row that tells why, if it fails."""
    environment = os.environ | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    command = [sys.executable, str(HERE / "engine_stage.py"), what]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return [{"check": f"engine, {what}", "ok": False, "problem": f"took over {limit:.0f} s"}]
    if done.returncode:
        return [{"check": f"engine, {what}", "ok": False, "problem": done.stderr[-2000:]}]
    # vLLM may print before and after.
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    rows: list[Row] = json.loads(line.removeprefix(MARK))
    return rows


def start(model: Path, dtype: str, most: int) -> Any:
    """An engine in this process, with steps recorded for every batch that is measured."""
    from vllm import LLM

    from rwkv_server import plugin

    plugin.register()
    return LLM(
        model=str(model),
        dtype=dtype,
        max_model_len=4096,
        max_num_seqs=most,
        enable_chunked_prefill=True,
        enable_prefix_caching=False,
        compilation_config={"cudagraph_capture_sizes": [n for n in (*SIZES, most) if n <= most]},
    )


def recorded(llm: Any) -> str:
    """How vLLM says it records steps."""
    return str(llm.llm_engine.vllm_config.compilation_config.cudagraph_mode)


def check_parity() -> list[Row]:
    """Greedy tokens in fp32 of prompts that are read together, as the plain reference's."""
    import model_stage
    import torch
    from safetensors.torch import load_file
    from vllm import SamplingParams

    from rwkv_server.model.config import parse_config

    folder = model_stage.TINY_RECALL
    config = parse_config(json.loads((folder / "config.json").read_text()))
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= {name: tensor.float() for name, tensor in load_file(file).items()}
    generator = torch.Generator().manual_seed(11)
    prompts = [torch.randint(1, 256, (n,), generator=generator).tolist() for n in LENGTHS]
    llm = start(folder, "float32", 8)
    greedy = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    answers = llm.generate([{"prompt_token_ids": p} for p in prompts], greedy, use_tqdm=False)
    agreed = 0
    for prompt, answer in zip(prompts, answers, strict=True):
        wanted = model_stage.continue_greedily(config, tensors, prompt, NEW_TOKENS)
        found = answer.outputs[0].token_ids
        agreed += sum(a == b for a, b in zip(found, wanted, strict=True))
    total = len(prompts) * NEW_TOKENS
    mode = recorded(llm)
    return [
        {"check": "engine, tiny-recall in fp32", "agreed": agreed, "of": total}
        | {"ok": agreed == total, "recorded": mode},
        {"check": "engine, steps are recorded", "ok": "FULL" in mode, "recorded": mode},
    ]


def measure_throughput(size: str) -> list[Row]:
    """Tokens a second of greedy requests of 32 tokens in and 128 out."""
    import model_stage
    import random_checkpoint
    import torch
    from safetensors.torch import save_file
    from vllm import SamplingParams

    config = model_stage.SHAPES[size]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        random_checkpoint.write_side_files(path, config)
        tensors = model_stage.random_weights(config, torch.bfloat16, "cuda")
        save_file({n: t.cpu() for n, t in tensors.items()}, path / "model.safetensors")
        del tensors
        llm = start(path, "bfloat16", max(BATCHES))

    def greedy(tokens: int) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)

    for batch in BATCHES:
        prompts = [{"prompt_token_ids": list(range(1, 33))}] * batch
        llm.generate(prompts, greedy(4), use_tqdm=False)
        begun = time.perf_counter()
        llm.generate(prompts, greedy(128), use_tqdm=False)
        rate = round(batch * 128 / (time.perf_counter() - begun))
        rows.append({"time": f"engine, {size}, batch {batch}", "tokens/s": rate})
    return rows


if __name__ == "__main__":
    found = check_parity() if sys.argv[1] == "parity" else measure_throughput(sys.argv[1])
    print(MARK + json.dumps(found))

"""Runs the scenario on fresh vLLM engines, one for each token budget.

`python -m rwkv_server.acceptance.engine MODEL DTYPE FOLDER BUDGET…` writes FOLDER/<place>.json for
each budget and FOLDER/reference.json. Each engine has a process of its own, so that slots are
handed out from the beginning; they are forked from this one, which has imported vLLM already and
done nothing with it.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from vllm import LLM, SamplingParams

from rwkv_server import vllm_compat
from rwkv_server.acceptance import scenario, trace
from rwkv_server.model import config as model_config
from rwkv_server.model import reference, state_layout, step_trace
from rwkv_server.preflight import tensor_index, tokenizer
from rwkv_server.tokenizer import vocabulary


def run(model: Path, dtype: str, budget: int) -> dict[str, Any]:
    """Warm up, queue the six requests, step until all are done."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "steps.jsonl"
        llm = start(model, dtype, budget, path)
        warm_up = {"prompt_token_ids": list(scenario.WARM_UP)}
        hello = llm.generate([warm_up], _greedy(scenario.WARM_UP_TOKENS), use_tqdm=False)
        for name, prompt in scenario.requests():
            parameters = _greedy(scenario.OUTPUT_TOKENS)
            llm.llm_engine.add_request(name, {"prompt_token_ids": prompt}, parameters)
        outputs: dict[str, list[int]] = {}
        steps = []
        with path.open(encoding="ascii") as lines:
            lines.readlines()
            while llm.llm_engine.has_unfinished_requests():
                for output in llm.llm_engine.step():
                    if output.finished:
                        name = output.request_id.partition("-")[0]
                        outputs[name] = list(output.outputs[0].token_ids)
                if written := lines.readlines():
                    steps.append(trace.parse_step(written, vllm_compat.batch_requests(llm)))
    return {
        "trace": trace.render(steps).decode("ascii"),
        "outputs": dict(sorted(outputs.items())),
        "warmUp": list(hello[0].outputs[0].token_ids),
    }


def start(model: Path, dtype: str, budget: int, trace_path: Path) -> LLM:
    """An engine with as many slots as the scenario has, and our trace."""
    config = _read_config(model)
    world = tokenizer.check_tokenizer(model, config.vocab_size)
    return LLM(
        model=str(model),
        tokenizer_mode=vocabulary.MODE if world else "auto",
        dtype=dtype,
        seed=0,
        max_model_len=scenario.MAX_MODEL_LEN,
        max_num_seqs=scenario.SLOTS,
        max_num_batched_tokens=budget,
        enable_chunked_prefill=True,
        enable_prefix_caching=False,
        enforce_eager=True,
        # Steps one after the other: with overlap a step is planned before the last one is known.
        async_scheduling=False,
        kv_cache_memory_bytes=state_layout.cache_bytes(config, dtype, scenario.SLOTS),
        num_gpu_blocks_override=scenario.SLOTS + 1,  # for versions that don't read the bytes
        distributed_executor_backend="uni",
        additional_config={step_trace.KEY: str(trace_path)},
    )


def reference_outputs(model: Path, dtype: str) -> dict[str, list[int]]:
    """What the plain reference answers to each request, by itself, on the CPU."""
    config = _read_config(model)
    kind = getattr(torch, dtype)
    tensors: dict[str, torch.Tensor] = {}
    for file in tensor_index.weight_files(model):
        tensors |= {name: tensor.to(kind) for name, tensor in load_file(file).items()}
    found: dict[str, list[int]] = {}
    answers: dict[int, list[int]] = {}
    for name, prompt in scenario.requests():
        if len(prompt) not in answers:
            answers[len(prompt)] = _continue(config, tensors, prompt, kind)
        found[name] = answers[len(prompt)]
    return found


def _continue(
    config: model_config.RWKV7Config,
    tensors: dict[str, torch.Tensor],
    prompt: list[int],
    dtype: torch.dtype,
) -> list[int]:
    state = reference.new_state(config, dtype)
    tokens, unread = [], prompt
    with torch.inference_mode():
        for _ in range(scenario.OUTPUT_TOKENS):
            logits = reference.forward(config, tensors, unread, state)
            unread = [int(logits[-1].float().argmax())]
            tokens += unread
    return tokens


def _greedy(tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)


def _read_config(model: Path) -> model_config.RWKV7Config:
    return model_config.parse_config(json.loads((model / "config.json").read_text()))


def write(model: Path, dtype: str, budget: int | None, file: Path) -> None:
    """One engine's result, or without a budget the reference's, as a JSON file."""
    found = reference_outputs(model, dtype) if budget is None else run(model, dtype, budget)
    file.write_text(json.dumps(found))


def main(model: str, dtype: str, folder: str, *budgets: str) -> None:
    """Run one after the other; the first that fails ends all."""
    fork = multiprocessing.get_context("fork")
    jobs = [(int(budget), f"{place}.json") for place, budget in enumerate(budgets)]
    for budget, name in [*jobs, (None, "reference.json")]:
        process = fork.Process(target=write, args=(Path(model), dtype, budget, Path(folder, name)))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"the run for {name} failed")


if __name__ == "__main__":
    main(*sys.argv[1:])

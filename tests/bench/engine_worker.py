"""Runs our engine for the bench: vLLM in this process, with the flags that the server gives it.

A step here is one `LLMEngine.step()`: scheduling, the model, sampling and bookkeeping, tokens out.
Text isn't made, as the peers make none. Run by the engine environment's Python.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "server"), str(ROOT / "tests" / "support")]

from vllm import LLM, SamplingParams  # noqa: E402
from vllm.sampling_params import RequestOutputKind  # noqa: E402
from worker_loop import WARM_STEPS, prompt, serve  # noqa: E402

from rwkv_server.model import state_layout  # noqa: E402
from rwkv_server.model.config import parse_config  # noqa: E402
from rwkv_server.parent import args as server_args  # noqa: E402

ENDLESS = 100_000
BUDGET = 512
MAX_MODEL_LEN = 4096
GREEDY: dict[str, Any] = {"temperature": 0.0}
USUAL: dict[str, Any] = {
    "temperature": 1.0,
    "top_p": 0.3,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
}
"""How RWKV is mostly sampled."""


class Ours:
    """One engine; see `main` for its commands."""

    def __init__(self, model: Path, options: dict[str, Any]) -> None:
        config = parse_config(json.loads((model / "config.json").read_text()))
        slots = options.pop("max_num_seqs")
        cache = state_layout.cache_bytes(config, options["dtype"], slots)
        self.engine: Any = LLM(
            model=str(model),
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=slots,
            max_num_batched_tokens=max(BUDGET, slots),
            enable_chunked_prefill=True,
            enable_prefix_caching=False,
            enforce_eager=True,
            kv_cache_memory_bytes=cache,
            distributed_executor_backend="uni",
            logits_processors=[server_args.LOGITS_PROCESSORS["cpu"]],
            **options,
        ).llm_engine
        self.model: Any = self.engine.model_executor.driver_worker.model_runner.model
        self.names = map(str, itertools.count())
        self.tokens: dict[str, list[int]] = {}

    def decode(self, batch: int, steps: int, sampling: dict[str, Any] = GREEDY) -> dict[str, Any]:
        """Time steps in which `batch` requests get one token each."""
        names = self._start(batch, sampling)
        self._steps(WARM_STEPS)
        started = time.perf_counter()
        self._steps(steps)
        seconds = time.perf_counter() - started
        self._end(names)
        return {"seconds": seconds, "tokens": self.tokens[names[0]]}

    def sampled(self, steps: int) -> dict[str, Any]:
        """Time batch 1 with top_p and penalties."""
        return self.decode(1, steps, USUAL)

    def prefill(self, length: int) -> dict[str, Any]:
        """Time a prompt until its first answer token."""
        started = time.perf_counter()
        names = self._add(1, length, GREEDY, 1)
        while self.engine.has_unfinished_requests():
            self.engine.step()
        assert len(names) == 1
        return {"seconds": time.perf_counter() - started}

    def split(self, steps: int) -> dict[str, Any]:
        """Mean milliseconds of a batch 1 step in the layers, in the head, and in all the rest."""
        spent = {"layers": 0.0, "head": 0.0}
        plain = {"layers": self.model.forward, "head": self.model.compute_logits}
        names = self._start(1, GREEDY)
        self._steps(WARM_STEPS)
        self.model.forward = timed(plain["layers"], spent, "layers")
        self.model.compute_logits = timed(plain["head"], spent, "head")
        started = time.perf_counter()
        self._steps(steps)
        whole = time.perf_counter() - started
        self.model.forward, self.model.compute_logits = plain["layers"], plain["head"]
        self._end(names)
        rest = whole - spent["layers"] - spent["head"]
        return {part: value / steps * 1e3 for part, value in {**spent, "rest": rest}.items()}

    def memory(self) -> dict[str, Any]:
        """Proportional memory of this process in bytes."""
        rollup = Path("/proc/self/smaps_rollup").read_text()
        (kib,) = (line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))
        return {"bytes": int(kib) * 1024}

    def _start(self, batch: int, sampling: dict[str, Any]) -> list[str]:
        """Add requests and step until every prompt is read."""
        names = self._add(batch, len(prompt(0)), sampling, ENDLESS)
        self.tokens = {name: [] for name in names}
        while not all(self.tokens.values()):
            self._steps(1)
        return names

    def _add(self, batch: int, length: int, sampling: dict[str, Any], tokens: int) -> list[str]:
        names = list(itertools.islice(self.names, batch))
        for sequence, name in enumerate(names):
            params = SamplingParams(
                **sampling,
                max_tokens=min(tokens, MAX_MODEL_LEN - length),
                ignore_eos=True,
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
            )
            ids = {"prompt_token_ids": prompt(sequence, length)}
            self.engine.add_request(name, ids, params)
        return names

    def _steps(self, count: int) -> None:
        for _ in range(count):
            for output in self.engine.step():
                self.tokens[output.request_id] += output.outputs[0].token_ids

    def _end(self, names: list[str]) -> None:
        self.engine.abort_request(names)
        while self.engine.has_unfinished_requests():
            self.engine.step()


def timed(call: Callable[..., Any], spent: dict[str, float], part: str) -> Callable[..., Any]:
    """`call`, with its seconds added to `spent[part]`."""

    def measured(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        result = call(*args, **kwargs)
        spent[part] += time.perf_counter() - started
        return result

    return measured


def main() -> None:
    """Arguments: the model's folder, and options of the engine as JSON."""
    folder, options = sys.argv[1:]

    def commands() -> dict[str, Any]:
        ours = Ours(Path(folder), json.loads(options))
        names = ("decode", "sampled", "prefill", "split", "memory")
        return {name: getattr(ours, name) for name in names}

    serve(commands)


if __name__ == "__main__":
    main()

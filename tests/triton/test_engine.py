"""vLLM's whole engine with the GPU's kernels and device plans, on the CPU in the interpreter."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from inproc_engine import Engine

TINY = Path(__file__).resolve().parents[2] / "image" / "models" / "tiny-recall"

# What third parties warn of in their own code is theirs.
THEIRS = r"(torch|vllm|transformers|rwkv|huggingface_hub|swig|importlib|pydantic)\b"
KINDS = ("DeprecationWarning", "FutureWarning", "UserWarning", "SyntaxWarning", "ImportWarning")
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}:{THEIRS}") for kind in KINDS]

KINDS_OF_STEPS: set[bool] = set()  # whether steps only decoded, as the kernels saw it


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    import inproc_engine

    from rwkv_server.kernels import dispatch
    from rwkv_server.model import cpu_layers

    on_gpu = dispatch.choose_kernels("cuda")

    def recorded(**inputs: Any) -> Any:
        KINDS_OF_STEPS.add(inputs["plan"].decodes)
        return on_gpu.wkv7(**inputs)

    chosen = dataclasses.replace(on_gpu, wkv7=recorded)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "choose_kernels", lambda _device_type: chosen)
        patch.setattr(cpu_layers, "fit", lambda *_arguments: None)  # as for a GPU's weights
        yield inproc_engine.Engine(TINY)


def test_mixed_batches_on_reused_slots_agree_with_the_official_model(
    engine: Engine, tmp_path: Path
) -> None:
    import oracle

    judge = oracle.Official(TINY, tmp_path).judge
    dice = random.Random(5)
    prompts = [[dice.randrange(1, 320) for _ in range(n)] for n in (1, 2, 40, 17, 1, 33, 16)]
    answers = engine.generate(prompts, max_tokens=6)
    verdicts = [judge(p, a.tokens, a.logits) for p, a in zip(prompts, answers, strict=True)]
    assert [v.agreed for v in verdicts] == [6] * len(prompts)
    assert min(v.cosine for v in verdicts) >= 0.999999
    assert {True, False} == KINDS_OF_STEPS

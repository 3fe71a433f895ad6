"""Every published size: its list of tensors into the model that vLLM builds, without bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from rwkv_server.model import config, weights

if TYPE_CHECKING:
    from inproc_engine import Engine

# layers, hidden size, ranks of decay, learning rate, value and gate → tensors, parameters
SIZES = {
    "0.1B": ((12, 768, 64, 64, 32, 128), 399, 191_034_624),
    "0.4B": ((24, 1024, 64, 64, 32, 128), 795, 450_767_872),
    "1.5B": ((24, 2048, 96, 96, 64, 256), 795, 1_527_404_544),
    "2.9B": ((32, 2560, 96, 96, 64, 320), 1059, 2_947_735_040),
    "7.2B": ((32, 4096, 128, 128, 96, 480), 1059, 7_199_141_888),
    "13.3B": ((61, 4096, 192, 192, 128, 384), 2016, 13_269_000_000),
}
# The ranks of 13.3B are second hand, so its sum is known to three digits only.
ROUNDED = {"13.3B": 20_000_000}

Tensors = Iterable[tuple[str, torch.Tensor]]


def published_config(size: str) -> dict[str, Any]:
    """config.json as fla's converter writes it, with what we correct or don't read."""
    (depth, hidden, decay, rate, value, gate), _, _ = SIZES[size]
    return {
        "architectures": [config.ARCHITECTURE],
        "model_type": config.MODEL_TYPE,
        "attn": None,
        "attn_mode": "chunk",
        "num_hidden_layers": depth,
        "hidden_size": hidden,
        "head_dim": 64,
        "num_heads": None,
        "hidden_ratio": 4.0,
        "intermediate_size": 4 * hidden,
        "decay_low_rank_dim": decay,
        "a_low_rank_dim": rate,
        "v_low_rank_dim": value,
        "gate_low_rank_dim": gate,
        "value_dim": [hidden] * depth,
        "hidden_act": "sqrelu",
        "norm_first": True,
        "norm_bias": True,
        "norm_eps": 1e-5,
        "fuse_norm": True,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "vocab_size": 65536,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }


def build_on_meta(folder: Path, size: str) -> torch.nn.Module:
    from vllm import EngineArgs
    from vllm.config import set_current_vllm_config

    from rwkv_server.model import rwkv7

    (folder / "config.json").write_text(json.dumps(published_config(size)))
    args = EngineArgs(
        model=str(folder),
        dtype="bfloat16",
        max_model_len=4096,
        enforce_eager=True,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=1 << 30,
    )
    vllm_config = args.create_engine_config()
    with set_current_vllm_config(vllm_config), torch.device("meta"):
        return rwkv7.RWKV7ForCausalLM(vllm_config=vllm_config)


def on_meta(shapes: dict[str, tuple[int, ...]]) -> Tensors:
    return ((name, torch.empty(shape, device="meta")) for name, shape in shapes.items())


@pytest.mark.parametrize("size", SIZES)
def test_every_tensor_finds_its_place(tiny: Engine, tmp_path: Path, size: str) -> None:
    _, count, parameters = SIZES[size]
    shapes = weights.expected_tensors(config.parse_config(published_config(size)))
    model = build_on_meta(tmp_path, size)
    wanted = {name: parameter.shape for name, parameter in model.named_parameters()}

    loaded = model.load_weights(on_meta(shapes))

    assert len(shapes) == count
    assert loaded == shapes.keys() == wanted.keys()
    assert {n: s.numel() for n, s in wanted.items()} == {
        n: torch.Size(s).numel() for n, s in shapes.items()
    }
    total = sum(torch.Size(shape).numel() for shape in shapes.values())
    assert abs(total - parameters) <= ROUNDED.get(size, 0)


def test_a_tensor_too_many_or_too_few_is_noticed(tiny: Engine, tmp_path: Path) -> None:
    shapes = weights.expected_tensors(config.parse_config(published_config("0.1B")))
    model = build_on_meta(tmp_path, "0.1B")
    missing = "model.layers.3.attn.v_lora.lora.2.bias"
    fewer = {name: shape for name, shape in shapes.items() if name != missing}
    assert dict(model.named_parameters()).keys() - model.load_weights(on_meta(fewer)) == {missing}
    more = shapes | {"model.layers.3.attn.q_proj.weight": (768, 768)}
    with pytest.raises(ValueError, match=r"model\.layers\.3\.attn\.q_proj"):
        model.load_weights(on_meta(more))

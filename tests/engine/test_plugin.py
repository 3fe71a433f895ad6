"""What the plugin registers with vLLM, and what it refuses."""

import contextlib
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


def vllm_config(**changes: Any) -> SimpleNamespace:
    from rwkv_server.model.config import RWKV7Config

    values = {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": True,
        "speculative_config": None,
        "additional_config": {},
        "enforce_eager": True,
        "mamba_cache_mode": "none",
        "block_size": 32,
        "mamba_block_size": None,
        "user_specified_block_size": True,
        "kv_transfer_config": None,
    } | changes
    part = SimpleNamespace(**values)
    model = RWKV7Config(320, 384, 3, 64, 1024, 32, 32, 16, 64, 1e-5, False)  # 6 heads, 3 layers
    return SimpleNamespace(
        parallel_config=part,
        cache_config=part,
        scheduler_config=part,
        model_config=SimpleNamespace(
            hf_config=SimpleNamespace(parse=lambda: model), enforce_eager=part.enforce_eager
        ),
        speculative_config=part.speculative_config,
        kv_transfer_config=part.kv_transfer_config,
        additional_config=part.additional_config,
    )


def test_the_config_that_the_server_starts_with_is_accepted() -> None:
    from rwkv_server import plugin

    plugin.check_config(vllm_config())


@pytest.mark.parametrize(
    ("field", "value", "option"),
    [
        ("tensor_parallel_size", 4, "--tensor-parallel-size 4 doesn't divide the model's 6 heads"),
        (
            "tensor_parallel_size",
            3,
            "--tensor-parallel-size 3 doesn't divide intermediate_size 1024",
        ),
        (
            "pipeline_parallel_size",
            4,
            "--pipeline-parallel-size 4 is more than the model's 3 layers",
        ),
        ("enable_chunked_prefill", False, "--enable-chunked-prefill"),
        ("speculative_config", object(), "speculative decoding"),
    ],
)
def test_what_this_version_does_not_do_is_refused_by_name(
    field: str, value: object, option: str
) -> None:
    from rwkv_server import plugin

    with pytest.raises(ValueError, match=f"RWKV-7: {option}"):
        plugin.check_config(vllm_config(**{field: value}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_transfer_config": object()}, "--no-enable-prefix-caching .* beside --kv-transfer-"),
        ({"user_specified_block_size": False}, "--block-size is needed"),
        ({"mamba_block_size": 16}, "--mamba-block-size 16 is not --block-size 32"),
        ({}, None),
    ],
)
def test_a_prefix_cache_is_for_engines_without_states_that_name_its_blocks(
    changes: dict[str, Any], message: str | None
) -> None:
    from rwkv_server import plugin, vllm_compat

    if not vllm_compat.COPIES_STATES:
        message = "--no-enable-prefix-caching is needed: this vLLM"
    wanted = pytest.raises(ValueError, match=message) if message else contextlib.nullcontext()
    with wanted:
        plugin.check_config(vllm_config(enable_prefix_caching=True, **changes))


@pytest.mark.parametrize("option", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_packed_weights_stay_on_one_rank(option: str) -> None:
    from rwkv_server import plugin
    from rwkv_server.model import packed_manifest

    plugin.check_config(vllm_config(**{option: 2}))
    packed = {packed_manifest.KEY: {"scheme": "W8"}}
    with pytest.raises(ValueError, match="with packed feed-forward weights: 1 is needed"):
        plugin.check_config(vllm_config(**{option: 2, "additional_config": packed}))


@pytest.mark.parametrize(
    ("field", "value", "option"),
    [
        ("enforce_eager", False, "--enforce-eager is needed"),
        ("tensor_parallel_size", 2, "--tensor-parallel-size must be 1"),
        ("pipeline_parallel_size", 2, "--pipeline-parallel-size must be 1"),
        ("mamba_cache_mode", "align", "--mamba-cache-mode=none is needed"),
        ("enable_prefix_caching", True, "--no-enable-prefix-caching is needed"),
        ("speculative_config", object(), "speculative decoding must be off"),
    ],
)
def test_ascend_has_fewer_ways(
    field: str, value: object, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rwkv_server import plugin, vllm_compat

    monkeypatch.setattr(vllm_compat.current_platform, "device_type", "npu")
    plugin.check_config(vllm_config())
    with pytest.raises(ValueError, match=f"RWKV-7: {option}"):
        plugin.check_config(vllm_config(**{field: value}))


def test_a_tokenizer_that_transformers_5_has_saved_is_read(
    tiny_model: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    from rwkv_server import plugin

    plugin.register()
    shutil.copytree(tiny_model, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "tokenizer_config.json"
    saved = json.loads(file.read_text()) | {"tokenizer_class": "TokenizersBackend"}
    file.write_text(json.dumps(saved))
    assert AutoTokenizer.from_pretrained(tmp_path).encode("Hi") == [ord("H") + 1, ord("i") + 1]


def test_registering_twice_is_harmless() -> None:
    from vllm import ModelRegistry

    from rwkv_server import plugin

    plugin.register()
    plugin.register()

    assert "RWKV7ForCausalLM" in ModelRegistry.get_supported_archs()


def test_a_graph_compiler_sees_the_block_as_one_operation_of_known_shape() -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from rwkv_server import plugin

    plugin.register()
    with FakeTensorMode():
        hidden = torch.empty(5, 8, dtype=torch.bfloat16)
        out = torch.ops.vllm.rwkv7_block(hidden, torch.empty_like(hidden), "no such layer")
    assert (out.shape, out.dtype) == (hidden.shape, hidden.dtype)

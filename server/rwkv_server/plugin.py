"""vLLM's general plugin: makes RWKV-7 known to every process of an engine.

The entry point `vllm.general_plugins` names `register`; vLLM calls it in the API server, the engine
core and each worker, and may call it twice.
"""

from __future__ import annotations

from transformers import AutoConfig
from vllm import ModelRegistry
from vllm.config import VllmConfig

from rwkv_server import vllm_chat_compat, vllm_compat
from rwkv_server.model import config, hf_config, packed_manifest, rwkv7
from rwkv_server.tokenizer import vocabulary


def register() -> None:
    """Register the config class, the model, its state backend, its limits and World's chats."""
    AutoConfig.register(config.MODEL_TYPE, hf_config.RWKV7HFConfig, exist_ok=True)
    vllm_compat.register_tokenizer_name(hf_config.RWKV7HFConfig)
    # The class and not its name: vLLM would start a Python process to look at a name.
    ModelRegistry.register_model(config.ARCHITECTURE, rwkv7.RWKV7ForCausalLM)
    vllm_compat.register_state_backend("rwkv_server.model.backend.RWKV7Backend")
    vllm_compat.register_config_check(config.ARCHITECTURE, check_config)
    vllm_chat_compat.register_chat(
        vocabulary.MODE,
        tokenizer="rwkv_server.tokenizer.world.WorldTokenizer",
        renderer="rwkv_server.tokenizer.renderer.WorldRenderer",
        tool_parser="rwkv_server.tokenizer.parsers.RWKVToolParser",
        reasoning_parser="rwkv_server.tokenizer.parsers.RWKVReasoningParser",
    )
    vllm_chat_compat.register_renderer("rwkv_server.tokenizer.renderer.CarriedRenderer")


def check_config(vllm_config: VllmConfig) -> None:
    """Refuse what this version doesn't do right, before anything is loaded.

    Raises:
        ValueError: naming the option and the value that works.
    """
    refused = {
        "speculative decoding must be off": vllm_config.speculative_config is not None,
        "--enable-chunked-prefill is needed": (
            not vllm_config.scheduler_config.enable_chunked_prefill
        ),
        **_check_prefix_cache(vllm_config),
        **_check_ranks(vllm_config),
        **(_check_ascend(vllm_config) if vllm_compat.on_ascend() else {}),
    }
    for message, is_refused in refused.items():
        if is_refused:
            raise ValueError(f"RWKV-7: {message}")


def _check_prefix_cache(vllm_config: VllmConfig) -> dict[str, bool]:
    """Where vLLM's own prefix cache is right, and what it needs.

    Never beside our connector: a state moves from block to block there, and prompts that begin with
    a state's placeholder would be taken for one another. vLLM sets the cache up before it chooses a
    block size, so the one that it chooses itself isn't the one of the cache.
    """
    cache = vllm_config.cache_config
    if not cache.enable_prefix_caching:
        return {}
    off = "--no-enable-prefix-caching is needed"
    if not vllm_compat.COPIES_STATES:
        return {f"{off}: this vLLM would cache states that were never written": True}
    blocks = (None, cache.block_size)
    return {
        f"{off} on {vllm_compat.device()} devices: the cache was tried on CPUs only": (
            vllm_compat.device() != "cpu"
        ),
        f"{off} beside --kv-transfer-config: states that are saved or resumed, and automatic "
        "reuse, exclude vLLM's prefix cache": vllm_config.kv_transfer_config is not None,
        "--block-size is needed with --enable-prefix-caching, such as 32": (
            not cache.user_specified_block_size
        ),
        f"--mamba-block-size {cache.mamba_block_size} is not --block-size {cache.block_size}: "
        "leave it out": cache.mamba_block_size not in blocks,
    }


def _check_ranks(vllm_config: VllmConfig) -> dict[str, bool]:
    """What several ranks could refuse: each has whole heads, feed-forward channels and layers."""
    parallel, model = vllm_config.parallel_config, vllm_config.model_config.hf_config.parse()
    split, stages = parallel.tensor_parallel_size, parallel.pipeline_parallel_size
    tensors, pipeline = f"--tensor-parallel-size {split}", f"--pipeline-parallel-size {stages}"
    heads, wide, depth = model.num_heads, model.intermediate_size, model.num_hidden_layers
    packed = packed_manifest.KEY in (vllm_config.additional_config or {})
    return {
        f"{tensors} doesn't divide the model's {heads} heads": heads % split > 0,
        f"{tensors} doesn't divide intermediate_size {wide}": wide % split > 0,
        f"{pipeline} is more than the model's {depth} layers": stages > depth,
        f"{tensors} with packed feed-forward weights: 1 is needed": packed and split > 1,
        f"{pipeline} with packed feed-forward weights: 1 is needed": packed and stages > 1,
    }


def _check_ascend(vllm_config: VllmConfig) -> dict[str, bool]:
    """What Ascend's plugin was never tried with; see docs/hardware.md."""
    parallel, cache = vllm_config.parallel_config, vllm_config.cache_config
    return {
        "--enforce-eager is needed on Ascend": not vllm_config.model_config.enforce_eager,
        "--tensor-parallel-size must be 1 on Ascend": parallel.tensor_parallel_size != 1,
        "--pipeline-parallel-size must be 1 on Ascend": parallel.pipeline_parallel_size != 1,
        "--mamba-cache-mode=none is needed on Ascend": cache.mamba_cache_mode != "none",
    }

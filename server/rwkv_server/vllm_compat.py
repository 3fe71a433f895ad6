"""Everything about vLLM that differs between versions or isn't a documented interface.

Written for 0.18, which Ascend's plugin goes with, and 0.32; they are told apart by what they have.
A new version is met by reading this file against it; no other file may poke into vLLM or ask for
its version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import transformers
from vllm.config import VllmConfig
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.mamba import mamba_utils
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.model_executor.models import config as model_configs
from vllm.model_executor.models import interfaces
from vllm.platforms import current_platform
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends import registry
from vllm.v1.attention.backends.mamba1_attn import Mamba1AttentionMetadata

# The one backend name that every version keeps free for others.
_CUSTOM = registry.MambaAttentionBackendEnum.CUSTOM
# How a state's owner names its backend: 0.18 has a table of keys, later versions the name itself.
BACKEND = "custom" if hasattr(registry, "MAMBA_TYPE_TO_BACKEND_MAP") else _CUSTOM

# Whether a prefix cache can be had that copies states only where a step ends with a block. 0.18's
# mark promises a state for each block, which our kernels don't write.
COPIES_STATES = hasattr(interfaces.SupportsMambaPrefixCaching, "get_mamba_state_copy_func")
CopiesStates: Any = interfaces.SupportsMambaPrefixCaching if COPIES_STATES else object


class Segments(NamedTuple):
    """A step's requests in batch order; padded ones have length 0.

    Attributes:
        computed: tokens of each request that were taken in earlier steps.
    """

    lengths: list[int]
    slots: list[int]
    computed: list[int]

    @property
    def fresh(self) -> list[bool]:
        """Whether nothing of the request was computed before."""
        return [count == 0 for count in self.computed]


def register_tokenizer_name(config_class: type) -> None:
    """Let the transformers 4 that goes with vLLM 0.18 read what transformers 5 has saved.

    Its tokenizer_config.json names a class of this name, which 4 doesn't have.
    """
    name = "TokenizersBackend"
    if hasattr(transformers, name):
        return
    backend = type(name, (transformers.PreTrainedTokenizerFast,), {})
    transformers.AutoTokenizer.register(config_class, fast_tokenizer_class=backend, exist_ok=True)


def on_ascend() -> bool:
    """Whether Ascend's plugin has made this a vLLM for its devices."""
    return current_platform.device_type == "npu"


def device() -> str:
    """What this vLLM computes on, in torch's words."""
    return str(current_platform.device_type)


def whole_copies(count: int) -> tuple[Callable[..., Any], ...]:
    """What vLLM's prefix cache copies of a layer's `count` states at the end of a block: all."""
    return (mamba_utils.get_temporal_copy_spec,) * count


class StateOwner(MambaBase):
    """A layer with a state in vLLM's cache.

    `kv_cache` is its tensors in page order, each with the slot first. 0.18 binds them inside a list
    of one entry, later versions as they are.
    """

    _states: tuple[torch.Tensor, ...] = ()

    @property
    def kv_cache(self) -> tuple[torch.Tensor, ...]:
        """Empty before there is a cache."""
        return self._states

    @kv_cache.setter
    def kv_cache(self, bound: Sequence[Any]) -> None:
        nested = len(bound) == 1 and isinstance(bound[0], list | tuple)
        self._states = tuple(bound[0] if nested else bound)


def register_state_backend(path: str) -> None:
    """Name the attention backend class that describes each step to our layers."""
    registry.register_backend(_CUSTOM, path, is_mamba=True)


def register_config_check(architecture: str, check: Callable[[VllmConfig], None]) -> None:
    """Have vLLM size the state cache for `architecture`, after `check` has seen the whole config.

    The table is a plain dictionary inside vLLM. Without an entry the block size of the state cache
    stays unset and the engine dies with an assertion.
    """

    class Check(model_configs.MambaModelConfig):
        @classmethod
        def verify_and_update_config(cls, vllm_config: VllmConfig) -> None:
            check(vllm_config)
            super().verify_and_update_config(vllm_config)

    model_configs.MODELS_CONFIG_MAP[architecture] = Check


def read_segments(step: CommonAttentionMetadata, state: Mamba1AttentionMetadata) -> Segments:
    """The step's requests with their state slots.

    A request is fresh when nothing of it was computed before this step. vLLM takes a one-token
    prompt for a decoding request in some versions and never clears a slot, so this is asked of the
    counts and not of the kind of row.
    """
    count = step.num_reqs
    lengths = torch.diff(step.query_start_loc_cpu[: count + 1])
    computed = _tokens(step)[:count] - lengths
    parts = []
    if state.num_decodes and state.state_indices_tensor_d is not None:
        parts.append(state.state_indices_tensor_d[: state.num_decodes, 0])
    if state.num_prefills and state.state_indices_tensor_p is not None:
        parts.append(state.state_indices_tensor_p)
    return Segments(lengths.tolist(), torch.cat(parts).tolist(), computed.tolist())


class DeviceSegments(NamedTuple):
    """A step's requests as device tensors; padded ones have no rows.

    Attributes:
        starts: first row of each request, then the row after the last one.
        slots: state slots, below 0 where there is none.
        fresh: whether nothing of the request was computed before.
    """

    starts: torch.Tensor
    slots: torch.Tensor
    fresh: torch.Tensor


def read_device_segments(
    step: CommonAttentionMetadata, state: Mamba1AttentionMetadata
) -> DeviceSegments:
    """What `read_segments` reads, without waiting for the device.

    Padded requests come last and point at block 0, which vLLM gives to nobody, or below.
    """
    count = step.num_reqs
    starts = step.query_start_loc[: count + 1]
    parts = []
    if state.num_decodes and state.state_indices_tensor_d is not None:
        parts.append(state.state_indices_tensor_d[:, 0])
    if state.num_prefills and state.state_indices_tensor_p is not None:
        parts.append(state.state_indices_tensor_p)
    slots = torch.cat(parts)[:count]
    fresh = step.seq_lens[:count] == starts.diff()
    return DeviceSegments(starts, slots.where(slots > 0, -1), fresh)


def _tokens(step: CommonAttentionMetadata) -> torch.Tensor:
    """Tokens of each request with this step's, from the host's copy where there is one.

    The copy is named differently by 0.32, 0.18 and Ascend's plugin for 0.18. Where the last has a
    field, 0.18 has a deprecated property.
    """
    fields = vars(step)
    for name in ("seq_lens_cpu_upper_bound", "_seq_lens_cpu", "seq_lens_cpu"):
        counts: torch.Tensor | None = fields.get(name)
        if counts is not None:
            return counts
    return step.seq_lens.cpu()


def batch_requests(llm: Any) -> list[str]:
    """The ids of an in-process engine's requests in its last step, in batch order.

    vLLM adds a suffix of its own to each id; it's cut off.
    """
    runner = llm.llm_engine.model_executor.driver_worker.model_runner
    return [name.partition("-")[0] for name in runner.input_batch.req_ids]


def _state_name(layer: str) -> str:
    """What vLLM's tables call the state of `layer`.

    Ascend's plugin for 0.18 has memory only for states with "linear_attn" in their names.
    """
    return f"{layer}.linear_attn"


def current_layer(name: str) -> torch.nn.Module:
    """The layer object registered under `name`, from inside a custom operation."""
    layer: torch.nn.Module = get_forward_context().no_compile_layers[_state_name(name)]
    return layer


def current_metadata(name: str) -> Any:
    """What the backend built for this step, or None in a run that only measures memory."""
    metadata = get_forward_context().attn_metadata
    return metadata.get(_state_name(name)) if isinstance(metadata, dict) else metadata


def register_layer(vllm_config: VllmConfig, name: str, layer: torch.nn.Module) -> None:
    """Make `layer` known as the owner of a state in the cache."""
    layers = vllm_config.compilation_config.static_forward_context
    if _state_name(name) in layers:
        raise ValueError(f"layer {name} is registered twice")
    layers[_state_name(name)] = layer


def keep_weights(module: torch.nn.Module) -> None:
    """Have vLLM leave a loaded matrix as it is.

    On CPUs it would pack a copy of each, and take the original away.
    """

    class Kept(type(module.quant_method)):  # type: ignore[misc]
        def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
            layer.cpu_linear = torch.nn.functional.linear

    module.quant_method = Kept()

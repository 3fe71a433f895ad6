"""Everything about vLLM that differs between versions or isn't a documented interface.

Written for 0.32. A new version is met by reading this file against it; no other file may poke into
vLLM or ask for its version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from vllm.config import VllmConfig
from vllm.forward_context import get_forward_context
from vllm.model_executor.models import config as model_configs
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.mamba1_attn import Mamba1AttentionMetadata
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum, register_backend

# The one backend name that every version keeps free for others.
BACKEND = MambaAttentionBackendEnum.CUSTOM


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


def register_state_backend(path: str) -> None:
    """Name the attention backend class that describes each step to our layers."""
    register_backend(BACKEND, path, is_mamba=True)


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
    assert step.seq_lens_cpu_upper_bound is not None
    computed = step.seq_lens_cpu_upper_bound[:count] - lengths
    parts = []
    if state.num_decodes and state.state_indices_tensor_d is not None:
        parts.append(state.state_indices_tensor_d[: state.num_decodes, 0])
    if state.num_prefills and state.state_indices_tensor_p is not None:
        parts.append(state.state_indices_tensor_p)
    return Segments(lengths.tolist(), torch.cat(parts).tolist(), computed.tolist())


def batch_requests(llm: Any) -> list[str]:
    """The ids of an in-process engine's requests in its last step, in batch order.

    vLLM adds a suffix of its own to each id; it's cut off.
    """
    runner = llm.llm_engine.model_executor.driver_worker.model_runner
    return [name.partition("-")[0] for name in runner.input_batch.req_ids]


def current_layer(name: str) -> torch.nn.Module:
    """The layer object registered under `name`, from inside a custom operation."""
    layer: torch.nn.Module = get_forward_context().no_compile_layers[name]
    return layer


def current_metadata(name: str) -> Any:
    """What the backend built for this step, or None in a run that only measures memory."""
    metadata = get_forward_context().attn_metadata
    return metadata.get(name) if isinstance(metadata, dict) else metadata


def register_layer(vllm_config: VllmConfig, name: str, layer: torch.nn.Module) -> None:
    """Make `layer` known as the owner of a state in the cache."""
    layers = vllm_config.compilation_config.static_forward_context
    if name in layers:
        raise ValueError(f"layer {name} is registered twice")
    layers[name] = layer

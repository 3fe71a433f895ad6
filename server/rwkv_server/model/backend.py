"""Tells the layers, once per step, which rows belong to which state slot.

vLLM calls this an attention backend; for a recurrent model it's only the bookkeeping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.mamba1_attn import (
    Mamba1AttentionBackend,
    Mamba1AttentionMetadata,
    Mamba1AttentionMetadataBuilder,
)

from rwkv_server import vllm_compat
from rwkv_server.kernels import plan
from rwkv_server.model import step_trace


@dataclass
class RWKV7Metadata(Mamba1AttentionMetadata):
    """vLLM's description of a step and our plan of it."""

    plan: plan.Plan | None = None


class RWKV7MetadataBuilder(Mamba1AttentionMetadataBuilder):
    """Builds a step's plan; all layers share it."""

    metadata_cls = RWKV7Metadata
    needs_causal_conv1d_metadata = False
    # A plan holds slots, so new block tables need a new plan.
    supports_update_block_table = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As vLLM's, and open the trace where one is asked for."""
        super().__init__(*args, **kwargs)
        self._trace = step_trace.open_trace(self.vllm_config.additional_config)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
        **kwargs: Any,
    ) -> RWKV7Metadata:
        """Describe one step."""
        metadata = super().build(common_prefix_len, common_attn_metadata, fast_build, **kwargs)
        segments = vllm_compat.read_segments(common_attn_metadata, metadata)
        lengths, slots, computed = segments
        metadata.plan = plan.build_plan(lengths, slots, segments.fresh, device=self.device)
        if self._trace is not None:
            self._trace.step(lengths, computed, slots)
        return metadata


class RWKV7Backend(Mamba1AttentionBackend):
    """Names the builder."""

    @staticmethod
    def get_name() -> str:
        """The name in vLLM's log."""
        return "RWKV7"

    @staticmethod
    def get_builder_cls() -> type[RWKV7MetadataBuilder]:
        """The builder above."""
        return RWKV7MetadataBuilder

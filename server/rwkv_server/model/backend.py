"""Tells the layers, once per step, which rows belong to which state slot.

vLLM calls this an attention backend; for a recurrent model it's only the bookkeeping.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.mamba1_attn import (
    Mamba1AttentionBackend,
    Mamba1AttentionMetadata,
    Mamba1AttentionMetadataBuilder,
)

from rwkv_server import vllm_compat
from rwkv_server.kernels import device_plan, dispatch, plan
from rwkv_server.model import step_trace


@dataclass
class RWKV7Metadata(Mamba1AttentionMetadata):
    """vLLM's description of a step and our plan of it."""

    plan: dispatch.AnyPlan | None = None


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
        self._on_device = dispatch.choose_kernels(self.device.type).on_device
        # A recorded step reads where it read when it was recorded.
        most = self.vllm_config.scheduler_config.max_num_seqs
        self._slots = torch.zeros(most, dtype=torch.int32, device=self.device)
        self._fresh = torch.zeros(most, dtype=torch.int8, device=self.device)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
        **kwargs: Any,
    ) -> RWKV7Metadata:
        """Describe one step."""
        metadata = super().build(common_prefix_len, common_attn_metadata, fast_build, **kwargs)
        if self._on_device:
            metadata.plan = self._plan_on_device(common_attn_metadata, metadata)
            if self._trace is None:
                return metadata
        segments = vllm_compat.read_segments(common_attn_metadata, metadata)
        lengths, slots, computed = segments
        if not self._on_device:
            metadata.plan = plan.build_plan(lengths, slots, segments.fresh, device=self.device)
        if self._trace is not None:
            self._trace.step(lengths, computed, slots)
        return metadata

    def _plan_on_device(
        self, step: CommonAttentionMetadata, state: RWKV7Metadata
    ) -> device_plan.DevicePlan:
        """Plan without waiting for the device; decodes always at the same addresses."""
        segments = vllm_compat.read_device_segments(step, state)
        rows, decodes = step.num_actual_tokens, step.max_query_len == 1
        planned = device_plan.build_device_plan(*segments, rows, decodes=decodes)
        count = len(planned.slots)
        if not decodes or count > len(self._slots):
            return planned
        slots = self._slots[:count].copy_(planned.slots)
        return replace(planned, slots=slots, fresh=self._fresh[:count].copy_(planned.fresh))


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

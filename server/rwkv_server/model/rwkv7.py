"""RWKV-7 as vLLM serves it: embeddings, blocks, final norm, head, and how weights get in.

Weights have fla's names, so a checkpoint loads without a mapping. The blocks, and all that touches
states, are in `layers`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.models.interfaces import HasInnerState, IsAttentionFree
from vllm.model_executor.models.utils import AutoWeightsLoader, maybe_prefix
from vllm.sequence import IntermediateTensors

from rwkv_server.model import layers, packed, packed_manifest, state_layout
from rwkv_server.model.config import RWKV7Config


class RWKV7Model(nn.Module):
    """Token ids to the last layer's normed output."""

    def __init__(self, config: RWKV7Config, vllm_config: VllmConfig, prefix: str) -> None:
        """Build every block; each registers its state with vLLM."""
        super().__init__()
        self.embeddings = VocabParallelEmbedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            layers.RWKV7Block(config, vllm_config, f"{prefix}.layers.{index}")
            for index in range(config.num_hidden_layers)
        )
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)

    def forward(
        self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None
    ) -> torch.Tensor:
        """(rows,) or (rows, size) → (rows, size)."""
        hidden = self.embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        v_first = torch.empty_like(hidden)
        for layer in self.layers:
            hidden = layer(hidden, v_first)
        return self.norm(hidden)


class RWKV7ForCausalLM(nn.Module, HasInnerState, IsAttentionFree):
    """The class that config.json's `architectures` names."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        """Build the model from vLLM's whole configuration."""
        super().__init__()
        config = vllm_config.model_config.hf_config.parse()
        self.config = vllm_config.model_config.hf_config
        self.model = RWKV7Model(config, vllm_config, maybe_prefix(prefix, "model"))
        self.lm_head = ParallelLMHead(
            config.vocab_size, config.hidden_size, prefix=maybe_prefix(prefix, "lm_head")
        )
        if config.tie_word_embeddings:
            self.lm_head = self.lm_head.tie_weights(self.model.embeddings)
        self.logits_processor = LogitsProcessor(config.vocab_size)
        self._packed = vllm_config.additional_config.get(packed_manifest.KEY)
        self._folder = Path(vllm_config.model_config.model)

    @classmethod
    def get_mamba_state_shape_from_config(
        cls, vllm_config: VllmConfig
    ) -> tuple[tuple[int, ...], ...]:
        """Shapes of one layer's state, before a model exists."""
        return tuple(tensor.shape for tensor in _layer_state(vllm_config))

    @classmethod
    def get_mamba_state_dtype_from_config(cls, vllm_config: VllmConfig) -> tuple[torch.dtype, ...]:
        """Types of one layer's state, before a model exists."""
        return tuple(getattr(torch, tensor.dtype) for tensor in _layer_state(vllm_config))

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """(rows,) → (rows, size)."""
        return self.model.embeddings(input_ids)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """One step's rows to hidden states; positions mean nothing to a recurrence."""
        return self.model(input_ids, inputs_embeds)

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """(rows, size) → (rows, vocabulary)."""
        return self.logits_processor(self.lm_head, hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load a checkpoint; vLLM refuses one that leaves a tensor unset."""
        loaded = AutoWeightsLoader(self).load_weights(weights)
        for layer in self.model.layers:
            layer.attn.finish_loading()
        if self._packed is not None:
            packed.attach(self.model.layers, self._folder, self._packed, self.config.parse())
        return loaded


def _layer_state(vllm_config: VllmConfig) -> tuple[state_layout.StateTensor, ...]:
    model = vllm_config.model_config
    return state_layout.layer_state(model.hf_config.parse(), layers.dtype_name(model.dtype))

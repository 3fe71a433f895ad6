"""RWKV-7 as vLLM serves it: embeddings, blocks, final norm, head, and how weights get in.

Weights have fla's names, so a checkpoint loads without a mapping. The blocks, and all that touches
states, are in `layers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.distributed import get_pp_group
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.models.interfaces import HasInnerState, IsAttentionFree, SupportsPP
from vllm.model_executor.models.utils import (
    AutoWeightsLoader,
    PPMissingLayer,
    make_layers,
    maybe_prefix,
)
from vllm.sequence import IntermediateTensors

from rwkv_server import vllm_compat
from rwkv_server.model import cpu_layers, layers, packed, packed_manifest, shards, state_layout
from rwkv_server.model import weights as weights_of
from rwkv_server.model.config import RWKV7Config


class RWKV7Model(nn.Module):
    """Token ids to the last layer's normed output, or this pipeline rank's part of the way."""

    def __init__(self, config: RWKV7Config, vllm_config: VllmConfig, prefix: str) -> None:
        """Build this rank's blocks; each registers its state with vLLM."""
        super().__init__()
        pipeline, size = get_pp_group(), config.hidden_size
        self.size = size
        # A tied head is the embedding: the rank that has the head needs it too.
        tied_head = config.tie_word_embeddings and pipeline.is_last_rank
        self.embeddings = (
            VocabParallelEmbedding(config.vocab_size, size)
            if pipeline.is_first_rank or tied_head
            else PPMissingLayer()
        )
        first, end, self.layers = make_layers(
            config.num_hidden_layers,
            lambda prefix: layers.RWKV7Block(config, vllm_config, prefix),
            prefix=f"{prefix}.layers",
        )
        self.blocks = list(self.layers[first:end])
        self.norm = (
            nn.LayerNorm(size, eps=config.norm_eps) if pipeline.is_last_rank else PPMissingLayer()
        )

    def forward(
        self,
        input_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        received: IntermediateTensors | None,
    ) -> torch.Tensor | IntermediateTensors:
        """(rows,) or (rows, size) → (rows, size).

        Between pipeline ranks go the hidden state and the first layer's values, both whole: vLLM
        takes for granted that tensor-parallel ranks send the same.
        """
        if received is not None:
            hidden, v_first = received["hidden_states"], shards.own_share(received["v_first"])
        else:
            hidden = self.embeddings(input_ids) if inputs_embeds is None else inputs_embeds
            v_first = hidden.new_empty(len(hidden), self.size // shards.ranks())
        whole_stack = self.blocks[0].stack
        if whole_stack is not None:
            hidden = torch.ops.vllm.rwkv7_layers(hidden, v_first, self.blocks[0].prefix)
        else:
            for block in self.blocks:
                hidden = block(hidden, v_first)
        if not get_pp_group().is_last_rank:
            whole = shards.all_shares(v_first)
            return IntermediateTensors({"hidden_states": hidden, "v_first": whole})
        return hidden if whole_stack is not None else self.norm(hidden)


class RWKV7ForCausalLM(
    nn.Module, HasInnerState, IsAttentionFree, SupportsPP, vllm_compat.CopiesStates
):
    """The class that config.json's `architectures` names."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        """Build the model from vLLM's whole configuration."""
        super().__init__()
        config = vllm_config.model_config.hf_config.parse()
        self.config = vllm_config.model_config.hf_config
        self.model = RWKV7Model(config, vllm_config, maybe_prefix(prefix, "model"))
        self.lm_head = self._build_head(config, maybe_prefix(prefix, "lm_head"))
        self.logits_processor = LogitsProcessor(config.vocab_size)
        self._packed = vllm_config.additional_config.get(packed_manifest.KEY)
        self._on_load = vllm_config.additional_config.get(packed_manifest.ON_LOAD_KEY)
        self._folder = Path(vllm_config.model_config.model)
        self._stack: cpu_layers.CpuLayers | None = None

    def _build_head(self, config: RWKV7Config, prefix: str) -> nn.Module:
        if not get_pp_group().is_last_rank:
            return PPMissingLayer()
        head = ParallelLMHead(config.vocab_size, config.hidden_size, prefix=prefix)
        return head.tie_weights(self.model.embeddings) if config.tie_word_embeddings else head

    @classmethod
    def get_mamba_state_shape_from_config(
        cls, vllm_config: VllmConfig
    ) -> tuple[tuple[int, ...], ...]:
        """Shapes of one layer's state on each rank, before a model exists."""
        return tuple(tensor.shape for tensor in _layer_state(vllm_config))

    @classmethod
    def get_mamba_state_dtype_from_config(cls, vllm_config: VllmConfig) -> tuple[torch.dtype, ...]:
        """Types of one layer's state, before a model exists."""
        return tuple(getattr(torch, tensor.dtype) for tensor in _layer_state(vllm_config))

    @classmethod
    def get_mamba_state_copy_func(cls) -> tuple[Callable[..., Any], ...]:
        """How vLLM's prefix cache copies each tensor of one layer's state."""
        return vllm_compat.whole_copies(state_layout.TENSORS)

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """(rows,) → (rows, size)."""
        return self.model.embeddings(input_ids)

    def make_empty_intermediate_tensors(
        self, batch_size: int, dtype: torch.dtype, device: torch.device
    ) -> IntermediateTensors:
        """What a rank that isn't the first gets: (rows, size) each, before there is a sender."""
        shape = (batch_size, self.config.hidden_size)
        names = ("hidden_states", "v_first")
        return IntermediateTensors(
            {n: torch.zeros(shape, dtype=dtype, device=device) for n in names}
        )

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor | IntermediateTensors:
        """One step's rows to hidden states; positions mean nothing to a recurrence."""
        return self.model(input_ids, inputs_embeds, intermediate_tensors)

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """(rows, size) → (rows, vocabulary)."""
        if self._stack is not None:
            return self._stack.logits(hidden_states)
        return self.logits_processor(self.lm_head, hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load a checkpoint; vLLM refuses one that leaves a tensor unset."""
        loaded = AutoWeightsLoader(self).load_weights(self._take_initial_states(weights))
        for block in self.model.blocks:
            block.attn.finish_loading()
        if self._packed is not None:
            packed.attach(self.model.layers, self._folder, self._packed, self.config.parse())
        else:
            self._attach_stack()
        return loaded

    def _attach_stack(self) -> None:
        """Run the blocks as one C++ call a step, where that can be."""
        blocks, config = self.model.blocks, self.config.parse()
        library = cpu_layers.fit(config, blocks[0].attn.r_proj.weight)
        scheme = self._on_load
        if library is None:
            if scheme is not None:
                raise ValueError(
                    f"engine.quantization {scheme} needs the C++ kernels, and these don't fit the "
                    "machine, the model or the number of devices: set it to None"
                )
            return
        norm, head = self.model.norm, self.lm_head
        self._stack = cpu_layers.CpuLayers(library, config, blocks, norm, head, scheme)
        blocks[0].stack = self._stack
        if not isinstance(self.model.embeddings, PPMissingLayer):
            vllm_compat.keep_weights(self.model.embeddings)

    def _take_initial_states(
        self, tensors: Iterable[tuple[str, torch.Tensor]]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Give a state-tuned model's states to this rank's blocks, and pass on all else."""
        ending = weights_of.INITIAL_STATE
        blocks = {f"{block.prefix}.{ending}": block for block in self.model.blocks}
        for name, tensor in tensors:
            if name in blocks:
                blocks[name].start_from(tensor)
            elif not name.endswith(ending):
                yield name, tensor


def _layer_state(vllm_config: VllmConfig) -> tuple[state_layout.StateTensor, ...]:
    model, ranks = vllm_config.model_config, vllm_config.parallel_config.tensor_parallel_size
    return state_layout.layer_state(model.hf_config.parse(), layers.dtype_name(model.dtype), ranks)

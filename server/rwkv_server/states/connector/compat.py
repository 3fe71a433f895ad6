"""What the connector asks of vLLM that its versions answer differently, or not publicly.

States are read from the layers that own them and not from the tables that vLLM hands over: 0.18
puts lists of tensors there, later versions raw pages, and `StateOwner` has both undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.distributed import (
    get_pp_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)

from rwkv_server.states.connector import params
from rwkv_server.states.connector.pages import Rank
from rwkv_server.states.layout import StateLayout


def find_params(request: Any) -> None:
    """Give a request the parameters that its route had no field for: 0.18's Responses.

    They are among its further arguments then, where `ChatRoutes.hand_over` has put them.
    """
    sampling = request.sampling_params
    given = (sampling and sampling.extra_args) or {}
    if request.kv_transfer_params is None and params.FIELD in given:
        fields = (params.FIELD, params.SIGNATURE)
        request.kv_transfer_params = {name: given.get(name) for name in fields}


def read_layout(vllm_config: VllmConfig) -> StateLayout:
    """The layout of the model's snapshots."""
    model = vllm_config.model_config
    return StateLayout.of(model.hf_config.parse(), str(model.dtype).removeprefix("torch."))


def read_rank() -> Rank:
    """This worker's place; the order is that of vLLM's own ranks."""
    heads, ranks = get_tensor_model_parallel_rank(), get_tensor_model_parallel_world_size()
    return Rank(heads, get_pp_group().rank_in_group * ranks + heads)


def read_states(vllm_config: VllmConfig, names: Iterable[str]) -> dict[int, Sequence[torch.Tensor]]:
    """Each layer's states, block first, by the layer's number.

    Args:
        vllm_config: of this worker.
        names: what vLLM calls the states of this rank's layers.
    """
    owners: Any = vllm_config.compilation_config.static_forward_context
    layers = (owners[name] for name in names)
    return {int(layer.prefix.rsplit(".", 1)[1]): layer.kv_cache for layer in layers}

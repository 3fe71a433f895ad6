"""The class that vLLM loads by `--kv-transfer-config`, once for the scheduler and in each worker.

It only hands over to `StateScheduler` and `StateWorker`. The same code serves vLLM 0.18 and 0.32:
what one of them doesn't call isn't needed there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)

from rwkv_server.states import environment
from rwkv_server.states.connector import compat
from rwkv_server.states.connector.copies import Copies, HostCopies, StagedCopies
from rwkv_server.states.connector.pages import Rank, Rows, find_rows
from rwkv_server.states.connector.scheduler import StateScheduler
from rwkv_server.states.connector.sender import Sender
from rwkv_server.states.connector.work import NOTHING, StepWork
from rwkv_server.states.connector.worker import StateWorker

# Where `--kv-transfer-config` says what the workers need; the key is in the environment.
SLOTS, SOCKET = "slots", "socket"


class StepMetadata(KVConnectorMetadata):
    """A step's work on its way to the workers."""

    def __init__(self, work: StepWork) -> None:
        """Carry `work`."""
        self.work = work


_IDLE = StepMetadata(NOTHING)


class StateConnector(KVConnectorBase_V1, SupportsHMA):
    """Loads and saves the recurrent states of requests that the API process signed for."""

    def __init__(
        self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: Any = None
    ) -> None:
        """Make the half that `role` names; a worker's waits for its cache."""
        super().__init__(vllm_config, role, kv_cache_config)
        self._missing: set[int] = set()
        self._refused: set[str] = set()
        self._worker: StateWorker | None = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = StateScheduler(environment.read_key())

    # The scheduler's side.

    def on_new_request(self, request: Any) -> None:
        """Look at its parameters; 0.18 doesn't call this, they are looked at later there."""
        if request.kv_transfer_params is not None:
            self._scheduler.track(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """1 where a state stands for the prompt's first token."""
        compat.find_params(request)
        return self._scheduler.matched(request)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Note the request's block."""
        self._scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """The step's work."""
        work = self._scheduler.step(scheduler_output)
        return _IDLE if work is NOTHING else StepMetadata(work)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        """Whether the block stays until it is saved."""
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, None]:
        """The same: recurrent layers are one group."""
        compat.find_params(request)
        return self._scheduler.ended(request, block_ids), None

    # A worker's side.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Find the states in this rank's cache."""
        layout, rank = compat.read_layout(self._vllm_config), compat.read_rank()
        states = compat.read_states(self._vllm_config, kv_caches)
        copies = _choose_copies(find_rows(layout, states, rank), rank)
        extra = self._kv_transfer_config.kv_connector_extra_config
        sender = Sender(Path(extra[SOCKET]))
        slots = Path(extra[SLOTS])
        self._worker = StateWorker(copies, slots, layout.nbytes, sender, rank.index)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Load, before the step computes."""
        work = self._work()
        if self._worker is not None and (work.loads or work.refusals):
            self._missing |= self._worker.load(work)
            self._refused |= {refusal.request for refusal in work.refusals}

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads are complete, or ahead on the same stream."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Layers aren't saved one by one."""

    def wait_for_save(self) -> None:
        """Save the states of prompts that this step ended; the next one overwrites them."""
        work = self._work()
        if self._worker is not None and work.prompts:
            self._worker.save_prompts(work)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str], set[str]]:
        """Save final states: here, because 0.18 calls nothing else in a step without tokens."""
        work, refused = self._work(), self._refused
        self._refused = set()
        saved = self._worker.end(work) if self._worker is not None and work.ends else set()
        return saved, refused

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Blocks of requests that vLLM must fail."""
        missing, self._missing = self._missing, set()
        return missing

    def shutdown(self) -> None:
        """Tell what is left to tell."""
        if self._worker is not None:
            self._worker.close()

    def _work(self) -> StepWork:
        metadata: Any = self._get_connector_metadata()
        work: StepWork = metadata.work
        return work


def _choose_copies(rows: list[Rows], rank: Rank) -> Copies:
    device, writes_shared = rows[0].pages.device, rank.heads == 0
    if device.type == "cpu":
        return HostCopies(rows, writes_shared)
    return StagedCopies(rows, writes_shared, torch.get_device_module(device.type).Event)

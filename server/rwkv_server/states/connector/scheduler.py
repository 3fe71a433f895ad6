"""Which requests load, save and end in a step: the connector's half in the scheduler's process.

An exception here would end the engine for everybody, so there are ids and counts only: no I/O, no
tensors, and nothing that a request holds can raise. `Request` and `SchedulerOutput` are vLLM's, by
their shape; vLLM is not imported.

A request whose parameters are wrong must fail, and never start from an empty state. vLLM has no
hook for a refusal, but it has one for a load that fails: such a request is said to load
asynchronously, and the workers report its block as one that couldn't be loaded.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from rwkv_server.states.connector.params import BadTransfer, Transfer, verify
from rwkv_server.states.connector.work import NOTHING, End, PageCopy, Refusal, StepWork

_NONE, _PLACEHOLDER, _REFUSED = (0, False), (1, False), (1, True)
_FEWEST_TOKENS = 2  # the placeholder, and one to read after it

log = logging.getLogger(__name__)


@dataclass
class _Active:
    request: Any
    transfer: Transfer | None
    failed: str | None
    block: int | None = None


class StateScheduler:
    """The requests of this engine that have parameters, from their first sight to their end."""

    def __init__(self, key: bytes) -> None:
        """Believe what is signed with `key`."""
        self._key = key
        self._active: dict[str, _Active] = {}
        self._ids: set[str] = set()
        self._before_prompt_end: dict[str, _Active] = {}
        self._loads: list[PageCopy] = []
        self._ends: list[End] = []
        self._refusals: list[Refusal] = []

    def matched(self, request: Any) -> tuple[int, bool]:
        """How many of the prompt's tokens a load stands for, and whether it's asynchronous."""
        if request.kv_transfer_params is None:
            return _NONE
        active = self.track(request)
        transfer = active.transfer
        if transfer is None or active.failed:
            return _REFUSED
        if transfer.load is None:
            return _NONE
        if request.num_tokens < _FEWEST_TOKENS:
            active.failed = "no token comes after the loaded state"
            return _REFUSED
        # Set for logprobs of prompts, it would make vLLM ignore the load and begin with nothing.
        request.skip_reading_prefix_cache = False
        return _PLACEHOLDER

    def allocated(self, request: Any, blocks: Any, loaded: int) -> None:
        """The request has its block; `loaded` is what `matched` said, if vLLM took it up."""
        active = self._active.get(request.request_id)
        if active is None:
            return
        active.block = blocks.get_block_ids()[0][0]
        if not loaded:
            return
        if active.transfer is None or active.failed:
            self._refusals.append(Refusal(request.request_id, active.block))
        elif active.transfer.load is not None:
            copy = PageCopy(active.transfer.id, active.block, active.transfer.load)
            self._loads.append(copy)

    def step(self, output: Any) -> StepWork:
        """What the workers do in the step that was just scheduled."""
        prompts = self._take_prompt_ends(output) if self._before_prompt_end else []
        if not (prompts or self._loads or self._ends or self._refusals):
            return NOTHING
        work = StepWork(
            tuple(self._loads), tuple(prompts), tuple(self._ends), tuple(self._refusals)
        )
        for done in (self._loads, self._ends, self._refusals):
            done.clear()
        return work

    def ended(self, request: Any, blocks: tuple[list[int], ...]) -> bool:
        """A request ended; whether its block must stay until the workers have saved it."""
        if request.kv_transfer_params is None:
            return False
        active = self.track(request)
        del self._active[request.request_id]
        self._before_prompt_end.pop(request.request_id, None)
        transfer = active.transfer
        if transfer is None:
            return False
        self._ids.discard(transfer.id)
        end = End(
            id=transfer.id,
            request=request.request_id,
            status=request.status.name.removeprefix("FINISHED_").lower(),
            consumed=request.num_computed_tokens,
            tokens=list(request.all_token_ids[:]),
            save=self._final_copy(active, transfer, blocks),
            failed=active.failed,
        )
        self._ends.append(end)
        return end.save is not None

    def track(self, request: Any) -> _Active:
        """Remember a request that has parameters, the first time it is seen."""
        name = request.request_id
        if name in self._active:
            return self._active[name]
        transfer, failed = None, None
        try:
            transfer = verify(request.kv_transfer_params, self._key)
        except BadTransfer as error:
            log.warning("request %s has parameters that are %s: it fails", name, error)
        if transfer is not None and transfer.id in self._ids:
            log.warning("request %s repeats the transfer %s: it fails", name, transfer.id)
            transfer = None
        active = self._active[name] = _Active(request, transfer, failed)
        if transfer is not None:
            self._ids.add(transfer.id)
            if transfer.prompt is not None:
                self._before_prompt_end[name] = active
        return active

    def _take_prompt_ends(self, output: Any) -> list[PageCopy]:
        """Copies of the requests that read the last token of their prompt in this step."""
        copies = []
        for name, active in list(self._before_prompt_end.items()):
            request, transfer = active.request, active.transfer
            read = request.num_computed_tokens + output.num_scheduled_tokens.get(name, 0)
            if active.block is None or read < request.num_prompt_tokens:
                continue
            del self._before_prompt_end[name]
            if read == request.num_prompt_tokens and transfer and transfer.prompt:
                copies.append(PageCopy(transfer.id, active.block, transfer.prompt))
        return copies

    def _final_copy(
        self, active: _Active, transfer: Transfer, blocks: tuple[list[int], ...]
    ) -> PageCopy | None:
        """The copy of a final state, where there is one whose tokens are known.

        A request that waits, or was pushed out, has no block. One that was cut off while a step ran
        ahead may have read a token that nobody will ever know.
        """
        request, save = active.request, transfer.save
        known = 0 < request.num_computed_tokens <= request.num_tokens
        failed = active.failed is not None or request.status.name == "FINISHED_ERROR"
        if save is None or failed or not known or not blocks or not blocks[0]:
            return None
        return PageCopy(transfer.id, blocks[0][0], save)

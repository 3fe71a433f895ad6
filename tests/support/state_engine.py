"""An engine with the connector of states, and what the API process has of them, in one process."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import torch
from inproc_engine import Engine, Seen, greedy
from vllm import LLM, SamplingParams

from rwkv_server.model.config import parse_config
from rwkv_server.parent import args
from rwkv_server.states.connector.params import Transfer, sign
from rwkv_server.states.environment import KEY_VARIABLE
from rwkv_server.states.events import Ended, EngineEvents
from rwkv_server.states.hot import HotTier, Slot
from rwkv_server.states.layout import StateLayout
from rwkv_server.states.slots import Lease

KEY = b"s" * 32
# Stands for a loaded state; no prompt of a test has it.
PLACEHOLDER = 319
SLOTS = 24

T = TypeVar("T")


@dataclass(frozen=True)
class Ask:
    """One request.

    Attributes:
        prompt: its tokens; with a state to load, what comes after it.
        load: a state to start from.
        save, at_prompt: whether to keep the state of the end, of the prompt's end.
        more: further sampling parameters.
    """

    prompt: Sequence[int]
    max_tokens: int = 16
    load: Slot | None = None
    save: bool = False
    at_prompt: bool = False
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Got:
    """What came of it.

    Attributes:
        logits: one row for each token, where the engine's model is in this process.
    """

    tokens: list[int]
    reason: str | None
    ended: Ended
    save: Slot | None
    at_prompt: Slot | None
    logits: torch.Tensor | None = None


class Background:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)


class Memory:
    """The API process's half: slots and events."""

    def __init__(self, folder: Path, layout: StateLayout, ranks: int = 1) -> None:
        os.environ[KEY_VARIABLE] = KEY.hex()  # read when the scheduler is made
        self.path, self.socket = folder / "slots", folder / "socket"
        self.background = Background()
        self.hot = HotTier(self.path, layout, SLOTS)
        self.events = EngineEvents(self.socket, ranks)
        self.background.run(self.events.start())
        self._ids = map(str, itertools.count())

    @classmethod
    def of(cls, model: Path, folder: Path, ranks: int = 1) -> Memory:
        """For a model's snapshots at fp32."""
        config = parse_config(json.loads((model / "config.json").read_text()))
        return cls(folder, StateLayout.of(config, "float32"), ranks)

    @property
    def transfer_config(self) -> dict[str, Any]:
        return args.transfer_config(self.path, self.socket)

    def slot(self) -> Slot:
        (slot,) = self.background.run(self.hot.acquire(1, 0))
        return slot

    def lease(self, wanted: bool) -> Slot | None:
        return self.slot() if wanted else None

    def transfer(self, ask: Ask) -> tuple[Transfer, Slot | None, Slot | None]:
        save, at_prompt = self.lease(ask.save), self.lease(ask.at_prompt)
        leases: list[Lease | None] = [s and s.lease for s in (ask.load, save, at_prompt)]
        transfer = Transfer(next(self._ids), *leases)
        self.background.loop.call_soon_threadsafe(self.events.expect, transfer.id)
        return transfer, save, at_prompt

    def release(self, *slots: Slot | None) -> None:
        """Let the slots be anybody's."""
        self.background.run(self._release(slots))

    async def _release(self, slots: Sequence[Slot | None]) -> None:
        for slot in slots:
            if slot is not None:
                self.hot.release(slot)

    def give_away(self, slot: Slot | None) -> Slot:
        """Release a slot and give it to somebody else, whom this returns."""
        self.release(slot)
        others = self.background.run(self._all())
        (new,) = (other for other in others if slot is not None and other.index == slot.index)
        self.release(*(other for other in others if other is not new))
        return new

    async def _all(self) -> list[Slot]:
        return await self.hot.acquire(self.hot.use.free, 0)

    def ended(self, transfer: Transfer, timeout_s: float = 30) -> Ended:
        return self.background.run(self.events.ended(transfer.id, timeout_s))


def sampling(ask: Ask, transfer: Transfer | None) -> SamplingParams:
    options: dict[str, Any] = {"temperature": 0, "ignore_eos": True} | ask.more
    if transfer is not None:
        options["extra_args"] = {"kv_transfer_params": sign(transfer, KEY)}
    return SamplingParams(max_tokens=ask.max_tokens, **options)


def tokens_of(ask: Ask) -> list[int]:
    return [PLACEHOLDER] * (ask.load is not None) + list(ask.prompt)


class StateEngine:
    """An engine whose scheduler is in this process, with its memory."""

    def __init__(self, offline: LLM, memory: Memory, seen: Seen | None = None) -> None:
        self.memory = memory
        self.offline = offline
        self._seen = seen
        self.llm: Any = offline.llm_engine
        self.core: Any = self.llm.engine_core.engine_core
        self._keep_connector()
        self._names = map("r{}".format, itertools.count())

    @classmethod
    def start(cls, model: Path, memory: Memory) -> StateEngine:
        """All in this process."""
        engine = Engine(model, kv_transfer_config=memory.transfer_config)
        return cls(engine.llm, memory, engine.seen)

    def _keep_connector(self) -> None:
        """Show the worker's connector to vLLM in this engine's steps only.

        vLLM has one for a whole process, and here are other engines beside.
        """
        from vllm.distributed.kv_transfer import kv_transfer_state

        step, connector = self.core.step_fn, kv_transfer_state._KV_CONNECTOR_AGENT
        kv_transfer_state._KV_CONNECTOR_AGENT = None

        def step_with_connector() -> Any:
            with mock.patch.object(kv_transfer_state, "_KV_CONNECTOR_AGENT", connector):
                return step()

        self.core.step_fn = step_with_connector

    def add(self, ask: Ask) -> tuple[str, tuple[Transfer, Slot | None, Slot | None]]:
        """Put a request in, and step nothing yet."""
        name, use = next(self._names), self.memory.transfer(ask)
        self.llm.add_request(name, {"prompt_token_ids": tokens_of(ask)}, sampling(ask, use[0]))
        return name, use

    def drain(self) -> dict[str, Any]:
        """Step until nothing is left; the last output of each request."""
        outputs = {}
        while self.llm.has_unfinished_requests():
            outputs |= {output.request_id: output for output in self.llm.step()}
        self.settle()
        return outputs

    def settle(self) -> None:
        """Step as the engine's own loop does once the last answer is out."""
        while self.core.scheduler.has_requests() or self.core.batch_queue:
            self.core.step_fn()

    def run(self, *asks: Ask) -> list[Got]:
        """All at once."""
        if self._seen is not None:
            self._seen.clear()
        added = [self.add(ask) for ask in asks]
        outputs = self.drain()
        return [self._with_logits(name, self.got(outputs[name], *use)) for name, use in added]

    def _with_logits(self, name: str, got: Got) -> Got:
        if self._seen is None or not got.tokens:
            return got
        return replace(got, logits=torch.stack(self._seen[name][-len(got.tokens) :]))

    def got(
        self, output: Any, transfer: Transfer, save: Slot | None, at_prompt: Slot | None
    ) -> Got:
        ended = self.memory.ended(transfer)
        if output is None:
            return Got([], None, ended, save, at_prompt)
        answer = output.outputs[0]
        return Got(list(answer.token_ids), answer.finish_reason, ended, save, at_prompt)

    def plain(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        """Greedy tokens of requests without any parameters."""
        inputs = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        done = self.offline.generate(inputs, greedy(max_tokens), use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in done]

    def preempt(self) -> None:
        """Push all running requests out, as vLLM does when its cache is reset."""
        scheduler = self.core.scheduler
        # Blocks of steps under way aren't free yet, which vLLM would take for a failure.
        with mock.patch.object(scheduler.kv_cache_manager, "reset_prefix_cache", lambda: True):
            scheduler.reset_prefix_cache(reset_running_requests=True)


@contextmanager
def forced_async_scheduling() -> Iterator[None]:
    """Engines made inside schedule a step ahead, which vLLM does on GPUs only.

    The scheduler and the engine's loop are the real ones. The model runner stays as it is on CPUs:
    it has computed a step when the next one is scheduled, which the scheduler can't tell.
    """
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    check = CpuPlatform.check_and_update_config.__func__  # type: ignore[attr-defined]

    def with_async(cls: Any, config: Any) -> None:
        check(cls, config)
        config.scheduler_config.async_scheduling = True

    def never(self: Any, value: bool) -> None:
        vars(self)["use_async_scheduling"] = False  # for when the property is gone again

    sync = property(lambda self: False, never)
    with (
        mock.patch.object(CpuPlatform, "check_and_update_config", classmethod(with_async)),
        mock.patch.object(GPUModelRunner, "use_async_scheduling", sync, create=True),
    ):
        yield

"""What the scheduler's side tells the workers' side for one step. Plain values, pickled by vLLM."""

from __future__ import annotations

from dataclasses import dataclass

from rwkv_server.states.slots import Lease


@dataclass(frozen=True)
class PageCopy:
    """A copy between a block of the engine's cache and a slot, in either direction.

    Attributes:
        id: of the transfer.
        block: the block, the same on every rank and in every layer.
    """

    id: str
    block: int
    lease: Lease


@dataclass(frozen=True)
class End:
    """A request that ended.

    Attributes:
        id: of the transfer.
        request: vLLM's own id; its block is kept until the workers name it, if there is a `save`.
        failed: why it was refused.
    """

    id: str
    request: str
    status: str
    consumed: int
    tokens: list[int]
    save: PageCopy | None
    failed: str | None


@dataclass(frozen=True)
class Refusal:
    """A request that may not run: its block is reported as one that couldn't be loaded."""

    request: str
    block: int


@dataclass(frozen=True)
class StepWork:
    """All of a step."""

    loads: tuple[PageCopy, ...] = ()
    prompts: tuple[PageCopy, ...] = ()
    ends: tuple[End, ...] = ()
    refusals: tuple[Refusal, ...] = ()


NOTHING = StepWork()

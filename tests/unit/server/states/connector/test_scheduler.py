from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rwkv_server.states.connector.params import Transfer, sign
from rwkv_server.states.connector.scheduler import StateScheduler
from rwkv_server.states.connector.work import NOTHING, End, PageCopy, Refusal, StepWork
from rwkv_server.states.slots import Lease

KEY = b"k" * 32
LOAD, SAVE, PROMPT = Lease(1, 11), Lease(2, 12), Lease(3, 13)


class Status(enum.Enum):
    RUNNING = 1
    FINISHED_STOPPED = 2
    FINISHED_LENGTH_CAPPED = 3
    FINISHED_ABORTED = 4
    FINISHED_ERROR = 5


@dataclass
class Request:
    """What the connector reads of vLLM's."""

    request_id: str
    kv_transfer_params: Any
    all_token_ids: list[int] = field(default_factory=lambda: [9, 1, 2, 3])
    num_prompt_tokens: int = 4
    num_computed_tokens: int = 0
    status: Status = Status.RUNNING
    skip_reading_prefix_cache: bool = True

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)


@dataclass
class Step:
    """What it reads of a step."""

    num_scheduled_tokens: dict[str, int]


class Blocks:
    def __init__(self, block: int) -> None:
        self.block = block

    def get_block_ids(self) -> tuple[list[int], ...]:
        return ([self.block],)


class Engine:
    """Schedules as vLLM does, one request at a time."""

    def __init__(self) -> None:
        self.scheduler = StateScheduler(KEY)

    def admit(self, request: Request, block: int = 5) -> tuple[int, bool]:
        loaded, waits = self.scheduler.matched(request)
        self.scheduler.allocated(request, Blocks(block), loaded)
        request.num_computed_tokens = loaded
        return loaded, waits

    def step(self, request: Request, tokens: int = 0) -> StepWork:
        work = self.scheduler.step(Step({request.request_id: tokens} if tokens else {}))
        request.num_computed_tokens += tokens
        return work

    def finish(self, request: Request, status: Status, blocks: Any = ([5],)) -> tuple[bool, End]:
        request.status = status
        kept = self.scheduler.ended(request, blocks)
        (end,) = self.step(request).ends
        return kept, end


@pytest.fixture
def engine() -> Engine:
    return Engine()


def a_request(name: str = "r", **leases: Lease) -> Request:
    return Request(name, sign(Transfer(f"t-{name}", **leases), KEY))


def test_a_request_without_parameters_is_none_of_ours(engine: Engine) -> None:
    request = Request("r", None)
    assert engine.admit(request) == (0, False)
    assert engine.step(request, 4) is NOTHING
    assert engine.scheduler.ended(request, ([5],)) is False
    assert engine.step(request) is NOTHING


def test_a_state_stands_for_the_first_token(engine: Engine) -> None:
    request = a_request(load=LOAD)
    assert engine.admit(request) == (1, False)
    assert engine.step(request, 3).loads == (PageCopy("t-r", 5, LOAD),)
    assert engine.step(request, 1) is NOTHING
    assert not request.skip_reading_prefix_cache


@pytest.mark.parametrize("chunks", [[4], [1, 3], [2, 1, 1]], ids=str)
def test_the_prompt_s_state_is_copied_in_the_step_that_reads_its_last_token(
    engine: Engine, chunks: list[int]
) -> None:
    request = a_request(prompt=PROMPT)
    assert engine.admit(request) == (0, False)
    for chunk in chunks[:-1]:
        assert engine.step(request, chunk) is NOTHING
        assert engine.step(request) is NOTHING  # another request's step
    assert engine.step(request, chunks[-1]).prompts == (PageCopy("t-r", 5, PROMPT),)
    assert engine.step(request, 1) is NOTHING


def test_the_final_state_is_copied_in_the_step_after_the_end(engine: Engine) -> None:
    request = a_request(save=SAVE)
    engine.admit(request)
    engine.step(request, 4)
    request.all_token_ids += [7]
    kept, end = engine.finish(request, Status.FINISHED_LENGTH_CAPPED)
    copy = PageCopy("t-r", 5, SAVE)
    assert kept and end == End("t-r", "r", "length_capped", 4, [9, 1, 2, 3, 7], copy, None)


@pytest.mark.parametrize(
    ("computed", "status", "blocks"),
    [
        (6, Status.FINISHED_ABORTED, ([5],)),  # ran ahead of what is known
        (4, Status.FINISHED_ERROR, ([5],)),
        (0, Status.FINISHED_ABORTED, ([],)),  # never had a block
        (0, Status.FINISHED_STOPPED, ([],)),  # pushed out
        (0, Status.FINISHED_ABORTED, ()),
    ],
)
def test_a_state_that_nobody_could_name_is_not_copied(
    engine: Engine, computed: int, status: Status, blocks: Any
) -> None:
    request = a_request(save=SAVE)
    engine.admit(request)
    request.num_computed_tokens = computed
    kept, end = engine.finish(request, status, blocks)
    assert not kept and end.save is None


def test_one_that_never_ran_ends_too(engine: Engine) -> None:
    request = a_request(load=LOAD, save=SAVE, prompt=PROMPT)
    engine.scheduler.track(request)
    kept, end = engine.finish(request, Status.FINISHED_ABORTED, ([],))
    assert not kept and (end.id, end.status) == ("t-r", "aborted")


def test_after_a_preemption_the_state_is_loaded_again_and_the_prompt_s_kept(
    engine: Engine,
) -> None:
    request = a_request(load=LOAD, prompt=PROMPT)
    engine.admit(request)
    assert engine.step(request, 3).prompts
    request.all_token_ids += [7, 8]
    assert engine.admit(request, block=6) == (1, False)
    again = engine.step(request, 5)
    assert again.loads == (PageCopy("t-r", 6, LOAD),) and not again.prompts


def test_a_prompt_that_is_read_anew_is_copied_from_its_new_block(engine: Engine) -> None:
    request = a_request(prompt=PROMPT)
    engine.admit(request)
    engine.step(request, 2)
    engine.admit(request, block=6)
    assert engine.step(request, 4).prompts == (PageCopy("t-r", 6, PROMPT),)


@pytest.mark.parametrize(
    "params", [{}, {"do_remote_prefill": True}, sign(Transfer("x"), b"other"), [], "", 0], ids=str
)
def test_what_nobody_signed_is_refused_and_never_starts(engine: Engine, params: Any) -> None:
    request = Request("r", params)
    assert engine.admit(request) == (1, True)
    assert engine.step(request).refusals == (Refusal("r", 5),)
    request.status = Status.FINISHED_ERROR
    assert engine.scheduler.ended(request, ([5],)) is False
    assert engine.step(request) is NOTHING


def test_a_load_with_nothing_after_it_is_refused_and_told(engine: Engine) -> None:
    request = a_request(load=LOAD, save=SAVE)
    request.all_token_ids = [9]
    request.num_prompt_tokens = 1
    assert engine.admit(request) == (1, True)
    assert engine.step(request).refusals == (Refusal("r", 5),)
    kept, end = engine.finish(request, Status.FINISHED_ERROR)
    assert not kept and end.failed == "no token comes after the loaded state"


def test_a_transfer_is_used_once_at_a_time(engine: Engine) -> None:
    first, second = a_request(load=LOAD), a_request(load=LOAD)
    second.request_id = "other"
    assert engine.admit(first) == (1, False)
    assert engine.admit(second) == (1, True)
    second.status = Status.FINISHED_ERROR
    engine.scheduler.ended(second, ([5],))
    engine.finish(first, Status.FINISHED_STOPPED)
    assert engine.admit(a_request(load=LOAD)) == (1, False)


LEASES = st.none() | st.builds(Lease, st.integers(), st.integers())
SIGNED = st.builds(Transfer, st.text(max_size=3), LEASES, LEASES, LEASES).map(
    lambda transfer: sign(transfer, KEY)
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["track", "admit", "step", "end"]), st.integers(0, 2), st.integers(0, 5)
    ),
    max_size=30,
)


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # other work on the machine
)
@given(st.lists(SIGNED | ANYTHING, min_size=3, max_size=3), ACTIONS)
def test_nothing_that_a_request_holds_raises(
    params: list[Any], actions: list[tuple[str, int, int]]
) -> None:
    engine = Engine()
    requests = [Request(str(i), value) for i, value in enumerate(params)]
    for action, which, count in actions:
        request = requests[which]
        if action == "track" and request.kv_transfer_params is not None:
            engine.scheduler.track(request)
        elif action == "admit":
            engine.admit(request, block=count)
        elif action == "step":
            engine.step(request, count)
        elif action == "end":
            request.status = Status.FINISHED_ABORTED
            engine.scheduler.ended(request, ([count],) if count else ([],))
    for request in requests:
        request.status = Status.FINISHED_ABORTED
        engine.scheduler.ended(request, ([],))
    engine.step(requests[0])
    assert engine.step(requests[0]) is NOTHING

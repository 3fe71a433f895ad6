"""Every WKV-7 kernel behaves as the reference: any mix of segments, dirty buffers, guard slots.

A kernel that takes a `Plan` gets all of it by a line in `KERNELS`. Those on devices have their own
plans and their own runs of the same cases, in tests/triton.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import STEPS, guarded_states, rows

from rwkv_server.kernels import cpu_library, cpu_wkv7, naive, torch_wkv7
from rwkv_server.kernels.plan import CHUNK, build_plan

KERNELS: dict[str, Callable[..., torch.Tensor]] = {
    "naive": naive.wkv7,
    "torch": torch_wkv7.wkv7,
    **{
        f"cpp-{library.name}": functools.partial(cpu_wkv7.wkv7, library)
        for library in cpu_library.find_libraries()
    },
}
# Heads, keys, values: the model's own, and what fills no vector.
SHAPES = [(2, 64, 64), (1, 8, 8), (3, 5, 13), (2, 70, 33), (1, 64, 1)]
LENGTHS = st.one_of(st.integers(0, 3), st.integers(CHUNK - 1, CHUNK + 1), st.integers(4, 70))

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())


def check(
    kernel: Callable[..., torch.Tensor],
    lengths: list[int],
    slots: list[int],
    shape: tuple[int, int, int],
    seed: int,
    pad: int = 0,
) -> None:
    """Outputs and states as the reference says; rows and slots of nobody stay as they were."""
    heads, key, value = shape
    plan = build_plan(lengths, slots, [False] * len(lengths))
    count = plan.num_rows
    inputs = rows(count + pad, heads, key, value, seed)
    for x in inputs:
        x[count:] = float("nan")
    # Slots lie in pages with other things before and behind, as vLLM's do.
    whole = max(slots) + 2
    pages = torch.full((whole, heads * key * value + 7), float("nan"))
    state = pages[:, 3:-4].view(whole, heads, key, value)
    state.copy_(guarded_states(plan, whole, heads, key, value, seed=seed + 1))
    wanted_state, before = state.clone(), pages.clone()
    wanted = naive.wkv7(*inputs, state=wanted_state, plan=plan)
    out = kernel(*inputs, state=state, plan=plan)
    assert out.shape == (count + pad, heads, value)
    torch.testing.assert_close(out[:count], wanted[:count], rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(out[count:], torch.zeros(pad, heads, value), rtol=0, atol=0)
    used = plan.slots.tolist()
    torch.testing.assert_close(state[used], wanted_state[used], rtol=2e-5, atol=2e-5)
    state[used] = before[used, 3:-4].view(-1, heads, key, value)
    torch.testing.assert_close(pages, before, rtol=0, atol=0, equal_nan=True)


@every_kernel
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(lengths=st.lists(LENGTHS, min_size=1, max_size=6), seed=st.integers(0, 2**32), pad=LENGTHS)
def test_any_mix(
    kernel: Callable[..., torch.Tensor], lengths: list[int], seed: int, pad: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randperm(len(lengths) + 3, generator=generator)[: len(lengths)].tolist()
    check(kernel, lengths, slots, (2, 8, 8), seed, pad)


@every_kernel
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("step", STEPS)
def test_any_size(
    kernel: Callable[..., torch.Tensor], step: str, shape: tuple[int, int, int]
) -> None:
    lengths, slots, _ = STEPS[step]
    check(kernel, list(lengths), list(slots), shape, seed=5, pad=2)


@every_kernel
def test_a_prompt_split_anywhere_ends_in_the_same_state(
    kernel: Callable[..., torch.Tensor],
) -> None:
    inputs = rows(50, 2, 64, 64, seed=7)
    whole = torch.zeros(1, 2, 64, 64)
    out = kernel(*inputs, state=whole, plan=build_plan([50], [0], [True]))
    # One row after the other gives the same bits; the chunked form solves other systems.
    exact = kernel is not torch_wkv7.wkv7
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-5}
    for cut in (1, 15, 16, 17, 33, 49):
        state = torch.zeros(1, 2, 64, 64)
        parts = [
            kernel(*(x[a:b] for x in inputs), state=state, plan=build_plan([b - a], [0], [a == 0]))
            for a, b in ((0, cut), (cut, 50))
        ]
        torch.testing.assert_close(torch.cat(parts), out, **tolerance)
        torch.testing.assert_close(state, whole, **tolerance)


@every_kernel
def test_the_strongest_decay_stays_exact_over_a_long_prompt(
    kernel: Callable[..., torch.Tensor],
) -> None:
    r, log_w, *rest = rows(400, 2, 8, 8, seed=3)
    inputs = (r, torch.full_like(log_w, -0.6065306597), *rest)
    plan = build_plan([400], [0], [True])
    wide, narrow = (torch.zeros(1, 2, 8, 8, dtype=d) for d in (torch.float64, torch.float32))
    wanted = naive.wkv7(*(x.double() for x in inputs), state=wide, plan=plan)
    out = kernel(*inputs, state=narrow, plan=plan)
    torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=1e-5)


@every_kernel
def test_a_decay_that_is_no_number_is_not_hidden(kernel: Callable[..., torch.Tensor]) -> None:
    r, log_w, *rest = rows(6, 1, 8, 8, seed=9)
    log_w[2] = float("nan")
    state = torch.zeros(1, 1, 8, 8)
    out = kernel(r, log_w, *rest, state=state, plan=build_plan([6], [0], [True]))
    assert out[2:].isnan().all() and state.isnan().all()


def test_padded_requests_touch_no_slot_and_fresh_ones_are_listed() -> None:
    plan = build_plan([1, 0, 20, 1], [4, 0, 2, 3], [False, True, True, False])
    assert plan.num_rows == 22
    assert plan.slots.tolist() == [4, 2, 3]
    assert plan.starts.tolist() == [0, 1, 21]
    assert plan.ends.tolist() == [0, 20, 21]
    assert plan.fresh.tolist() == [2]
    assert plan.single_rows.tolist() == [0, 21]
    assert plan.chunks is not None
    assert plan.chunks.targets.tolist() == list(range(1, 21))

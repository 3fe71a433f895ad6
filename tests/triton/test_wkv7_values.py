"""The Triton recurrence against the reference, in Triton's interpreter."""

import kernel_cases
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rwkv_server.kernels import naive, triton_wkv7
from rwkv_server.kernels.device_plan import build_device_plan
from rwkv_server.kernels.plan import build_plan


@pytest.mark.parametrize("sizes", [(2, 64, 64), (1, 8, 8), (3, 20, 40), (1, 5, 7)], ids=str)
@pytest.mark.parametrize("step", kernel_cases.STEPS)
def test_equals_the_reference(step: str, sizes: tuple[int, int, int]) -> None:
    compare(kernel_cases.STEPS[step], sizes, pad=3, seed=1)


def compare(step: kernel_cases.Step, sizes: tuple[int, int, int], pad: int, seed: int) -> None:
    """One step with NaN in padded rows, in other slots, and as another request's leftovers."""
    count = max(len(step[0]), *step[1]) + 2
    plan = build_plan(*step)
    inputs = kernel_cases.rows(plan.num_rows + pad, *sizes, seed=seed)
    for x in inputs:
        x[plan.num_rows :] = float("nan")
    wanted_state = kernel_cases.guarded_states(plan, count, *sizes, seed=seed + 1)
    state = wanted_state.clone()
    wanted_state[plan.fresh] = 0
    state[plan.fresh] = float("nan")
    before = state.clone()
    wanted = naive.wkv7(*inputs, state=wanted_state, plan=plan)

    out = triton_wkv7.wkv7(*inputs, state=state, plan=kernel_cases.on_device(step, pad))
    n, used = plan.num_rows, plan.slots
    torch.testing.assert_close(out[:n], wanted[:n], rtol=2e-5, atol=5e-5)
    assert not out[n:].any()
    torch.testing.assert_close(state[used], wanted_state[used], rtol=2e-5, atol=2e-5)
    guard = [slot for slot in range(count) if slot not in used.tolist()]
    torch.testing.assert_close(state[guard], before[guard], rtol=0, atol=0, equal_nan=True)


def test_states_between_other_bytes_of_their_pages() -> None:
    """vLLM's pages hold all of a layer's states: slots have gaps, and the gaps are others'."""
    heads, size, gap = 2, 16, 48
    pages = torch.full((4, gap + heads * size * size + gap), float("nan"))
    state = pages[:, gap:-gap].unflatten(1, (heads, size, size))
    state[:] = torch.randn(state.shape, generator=torch.Generator().manual_seed(1))
    wanted_state = state.clone()
    step = ([1, 19], [3, 1], [False, False])
    inputs = kernel_cases.rows(20, heads, size, size, seed=3)
    wanted = naive.wkv7(*inputs, state=wanted_state, plan=build_plan(*step))
    out = triton_wkv7.wkv7(*inputs, state=state, plan=kernel_cases.on_device(step, 0))
    torch.testing.assert_close(out, wanted, rtol=2e-5, atol=5e-5)
    torch.testing.assert_close(state, wanted_state, rtol=2e-5, atol=2e-5)
    assert pages[:, :gap].isnan().all()
    assert pages[:, -gap:].isnan().all()


def test_a_token_that_repeats_loses_no_precision() -> None:
    """Equal keys, no decay, full learning rate: powers of the chunk's system grow to 6,000."""
    sizes = (1, 16, 16)
    r, log_w, k, v, kk, a = kernel_cases.rows(64, *sizes, seed=4)
    inputs = (r, log_w * 0, k, v, kk[:1].expand_as(kk).contiguous(), torch.ones_like(a))
    step = ([64], [0], [True])
    wide = torch.zeros(1, *sizes, dtype=torch.float64)
    wanted = naive.wkv7(*(x.double() for x in inputs), state=wide, plan=build_plan(*step))
    state = torch.full((1, *sizes), float("nan"))
    out = triton_wkv7.wkv7(*inputs, state=state, plan=kernel_cases.on_device(step, 0))
    torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(state.double(), wide, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("step", [([1, 1], [2, 0], [1, 0]), ([1, 20, 3], [2, 0, 1], [1, 1, 0])])
def test_a_new_request_starts_from_a_tuned_state(step: kernel_cases.Step) -> None:
    sizes = (2, 16, 16)
    plan = build_plan(*step)
    inputs = kernel_cases.rows(plan.num_rows, *sizes, seed=8)
    initial = torch.randn(sizes, generator=torch.Generator().manual_seed(9))
    wanted_state = kernel_cases.guarded_states(plan, 4, *sizes, seed=10)
    state = wanted_state.clone()
    wanted_state[plan.fresh] = initial
    state[plan.fresh] = float("nan")
    wanted = naive.wkv7(*inputs, state=wanted_state, plan=plan)
    on_device = kernel_cases.on_device(step, 0)
    out = triton_wkv7.wkv7(*inputs, state=state, plan=on_device, initial=initial)
    torch.testing.assert_close(out, wanted, rtol=2e-5, atol=5e-5)
    torch.testing.assert_close(state, wanted_state, rtol=2e-5, atol=2e-5, equal_nan=True)


def test_inputs_of_the_models_type() -> None:
    sizes = (2, 16, 16)
    inputs = [x.bfloat16() for x in kernel_cases.rows(21, *sizes, seed=5)]
    step = ([1, 20], [0, 1], [False, True])
    wanted_state = torch.zeros(2, *sizes)
    state = wanted_state.clone()
    wanted = naive.wkv7(*(x.float() for x in inputs), state=wanted_state, plan=build_plan(*step))
    out = triton_wkv7.wkv7(*inputs, state=state, plan=kernel_cases.on_device(step, 0))
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, wanted, rtol=2e-5, atol=5e-5)


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(
        st.one_of(st.integers(0, 3), st.integers(15, 18), st.integers(4, 70)),
        min_size=1,
        max_size=6,
    ),
    pad=st.integers(0, 20),
    seed=st.integers(0, 2**32),
)
def test_any_mix_equals_the_reference(lengths: list[int], pad: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randperm(len(lengths) + 2, generator=generator)[: len(lengths)].tolist()
    fresh = (torch.rand(len(lengths), generator=generator) < 0.5).tolist()
    # What a decoding step promises: padded requests come last.
    lengths = sorted(lengths, reverse=True) if max(lengths) == 1 else lengths
    if not any(lengths):
        return
    compare((lengths, slots, fresh), (1, 16, 16), pad, seed)


def test_device_plan_places_rows_and_chunks() -> None:
    plan = build_device_plan(
        torch.tensor([0, 1, 1, 21, 22, 24]),
        torch.tensor([4, 9, 2, 3, -1]),
        torch.tensor([0, 1, 1, 0, 0]),
        26,
        decodes=False,
    )
    assert plan.slots.tolist() == [4, -1, 2, 3, -1]
    assert plan.owners.tolist() == [0] + [2] * 20 + [3] + [4, 4] + [-1, -1]
    pairs = zip(plan.chunk_firsts.tolist(), plan.chunk_ends.tolist(), strict=True)
    assert [pair for pair in pairs if pair[0] < pair[1]] == [(1, 17), (17, 21), (22, 24)]

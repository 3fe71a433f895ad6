"""Every WKV-7 kernel against the reference: any mix of segments, dirty buffers, guard slots."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rwkv_server.kernels import naive, torch_wkv7
from rwkv_server.kernels.plan import CHUNK, Plan, build_plan

HEADS, KEY, VALUE = 2, 8, 8
LENGTHS = st.one_of(st.integers(0, 3), st.integers(CHUNK - 1, CHUNK + 1), st.integers(4, 70))


def rows(count: int, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Inputs in the ranges that the model produces, with decays at both of their ends."""

    def normal() -> torch.Tensor:
        return torch.randn(count, HEADS, KEY, generator=generator)

    r, k, v = normal(), normal(), normal()
    log_w = -0.6065306597 * torch.sigmoid(8 * normal())
    kk = torch.nn.functional.normalize(normal(), dim=-1)
    return r, log_w, k, v, kk, torch.sigmoid(4 * normal())


def dirty_state(plan: Plan, slots: int, generator: torch.Generator) -> torch.Tensor:
    """States for the plan's slots, NaN in all others."""
    state = torch.full((slots, HEADS, KEY, VALUE), float("nan"))
    for slot in plan.slots.tolist():
        state[slot] = torch.randn(HEADS, KEY, VALUE, generator=generator)
    return state


@settings(max_examples=150, deadline=None)
@given(lengths=st.lists(LENGTHS, min_size=1, max_size=6), seed=st.integers(0, 2**32), pad=LENGTHS)
def test_torch_kernel_equals_the_reference_on_any_mix(
    lengths: list[int], seed: int, pad: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randperm(len(lengths) + 3, generator=generator)[: len(lengths)].tolist()
    plan = build_plan(lengths, slots, [False] * len(lengths))
    inputs = rows(plan.num_rows + pad, generator)
    for x in inputs:
        x[plan.num_rows :] = float("nan")
    state = dirty_state(plan, len(lengths) + 3, generator)
    wanted_state, guard = state.clone(), state.clone()
    wanted = naive.wkv7(*inputs, state=wanted_state, plan=plan)
    out = torch_wkv7.wkv7(*inputs, state=state, plan=plan)
    n = plan.num_rows
    torch.testing.assert_close(out[:n], wanted[:n], rtol=2e-5, atol=2e-5)
    used = plan.slots
    torch.testing.assert_close(state[used], wanted_state[used], rtol=2e-5, atol=2e-5)
    untouched = [s for s in range(len(lengths) + 3) if s not in used.tolist()]
    torch.testing.assert_close(state[untouched], guard[untouched], rtol=0, atol=0, equal_nan=True)


def test_a_prompt_split_anywhere_ends_in_the_same_state() -> None:
    generator = torch.Generator().manual_seed(7)
    inputs = rows(50, generator)
    whole = torch.zeros(1, HEADS, KEY, VALUE)
    out = torch_wkv7.wkv7(*inputs, state=whole, plan=build_plan([50], [0], [True]))
    for cut in (1, 15, 16, 17, 33, 49):
        state = torch.zeros(1, HEADS, KEY, VALUE)
        parts = [
            torch_wkv7.wkv7(
                *(x[a:b] for x in inputs), state=state, plan=build_plan([b - a], [0], [a == 0])
            )
            for a, b in ((0, cut), (cut, 50))
        ]
        torch.testing.assert_close(torch.cat(parts), out, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(state, whole, rtol=1e-5, atol=1e-5)


def test_the_strongest_decay_stays_exact_over_a_long_prompt() -> None:
    generator = torch.Generator().manual_seed(3)
    r, log_w, *rest = rows(400, generator)
    log_w = torch.full_like(log_w, -0.6065306597)
    plan = build_plan([400], [0], [True])
    wide, narrow = (
        torch.zeros(1, HEADS, KEY, VALUE, dtype=d) for d in (torch.float64, torch.float32)
    )
    inputs = (r, log_w, *rest)
    wanted = naive.wkv7(*(x.double() for x in inputs), state=wide, plan=plan)
    out = torch_wkv7.wkv7(*inputs, state=narrow, plan=plan)
    torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=1e-5)


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

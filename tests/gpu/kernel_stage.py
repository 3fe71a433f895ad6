"""The kernels by themselves on a device: values, recorded steps, no waiting, time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kernel_cases
import torch

from rwkv_server.kernels import naive, torch_rows, torch_wkv7, triton_rows, triton_wkv7
from rwkv_server.kernels.device_plan import DevicePlan, build_device_plan
from rwkv_server.kernels.plan import build_plan

Row = dict[str, Any]

SIZES = ((2, 64, 64), (1, 8, 8), (3, 20, 40))
# Products of three TF32 parts and sums in another order, relative to the largest value.
TOLERANCE = 5e-5
# Heads and hidden size of models, for time.
SHAPES = {"0.1B": 12, "1.5B": 32, "7.2B": 64}
BATCHES = (1, 32, 320)
PROMPTS = (512, 2048)


def check_values(device: str) -> Iterator[Row]:
    """Every case of the behaviour suite against the reference in double precision."""
    for name, step in kernel_cases.STEPS.items():
        for sizes in SIZES:
            yield {"check": f"recurrence, {name}, {sizes}"} | compare_recurrence(
                device, step, sizes
            )


def compare_recurrence(device: str, step: kernel_cases.Step, sizes: tuple[int, int, int]) -> Row:
    """One step with padded rows behind, NaN in every slot that isn't its own."""
    plan = build_plan(*step)
    inputs = kernel_cases.rows(plan.num_rows + 3, *sizes, seed=1)
    for x in inputs:
        x[plan.num_rows :] = float("nan")
    wide = kernel_cases.guarded_states(plan, 7, *sizes, seed=2).double()
    state = wide.float().to(device)
    wide[plan.fresh] = 0
    state[plan.fresh.to(device)] = float("nan")
    wanted = naive.wkv7(*(x.double() for x in inputs), state=wide, plan=plan)
    on_device = kernel_cases.on_device(step, 3, device)
    out = triton_wkv7.wkv7(*(x.to(device) for x in inputs), state=state, plan=on_device).cpu()
    n, used = plan.num_rows, plan.slots
    guard = [slot for slot in range(7) if slot not in used.tolist()]
    errors = {
        "out": relative_error(out[:n], wanted[:n]),
        "state": relative_error(state.cpu()[used], wide[used]),
    }
    untouched = bool(state.cpu()[guard].isnan().all()) and not bool(out[n:].any())
    return errors | {"ok": untouched and max(errors.values()) <= TOLERANCE}


def check_precision(device: str) -> Iterator[Row]:
    """A long prompt, and one token repeated without decay, where rounding has most to work on."""
    r, log_w, k, v, kk, a = kernel_cases.rows(1000, 1, 64, 64, seed=4)
    repeated = (r, log_w * 0, k, v, kk[:1].expand_as(kk).contiguous(), torch.ones_like(a))
    for name, inputs in (("a prompt of 1,000", (r, log_w, k, v, kk, a)), ("a repeat", repeated)):
        step: kernel_cases.Step = ([1000], [0], [True])
        wide = torch.zeros(1, 1, 64, 64, dtype=torch.float64)
        wanted = naive.wkv7(*(x.double() for x in inputs), state=wide, plan=build_plan(*step))
        state = torch.full((1, 1, 64, 64), float("nan"), device=device)
        plan = kernel_cases.on_device(step, 0, device)
        out = triton_wkv7.wkv7(*(x.to(device) for x in inputs), state=state, plan=plan)
        errors = {
            "out": relative_error(out.cpu(), wanted),
            "state": relative_error(state.cpu(), wide),
        }
        yield {"check": f"precision, {name}", "ok": max(errors.values()) <= TOLERANCE} | errors


def relative_error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Largest difference over the largest value; NaN counts as infinite."""
    error = (found.double() - wanted.double()).abs().max() / wanted.abs().max()
    return float(error.nan_to_num(float("inf")))


def check_rows(device: str) -> Iterator[Row]:
    """The fused row kernels against torch operations on the same device."""
    step = kernel_cases.STEPS["a mix with empty segments between"]
    plan, on_device = build_plan(*step, device=device), kernel_cases.on_device(step, 0, device)
    size, rows = 128, plan.num_rows
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device)

    x, mixes, cache = normal(rows, size), normal(6, 1, size), normal(7, 1, size)
    kept = cache.clone()
    kept[plan.fresh] = 0
    wanted = torch_rows.mix(x, kept, mixes, plan)
    mixed = triton_rows.mix(x, cache, mixes, on_device)
    yield judge_rows("mix", {"out": (mixed, wanted), "cache": (cache, kept)})
    for gate in (None, normal(rows, size)):
        projected = torch_rows.Projected(*(normal(rows, size) for _ in range(5)), gate)
        scales = torch_rows.KeyScales(normal(size), normal(size))
        first, first_wanted = normal(rows, size), torch.empty(rows, size, device=device)
        first_wanted.copy_(first)
        heads = triton_rows.prepare(projected, first, scales, 64)
        good = torch_rows.prepare(projected, first_wanted, scales, 64)
        pairs = {name: (getattr(heads, name), value) for name, value in good._asdict().items()}
        yield judge_rows("prepare", pairs | {"v_first": (first, first_wanted)})
    readout = torch_rows.Readout(normal(2, 64), normal(size), normal(size), 64e-5)
    y, g = normal(rows, 2, 64), normal(rows, size)
    wanted = torch_rows.finish(y.clone(), good, readout, g)
    yield judge_rows("finish", {"out": (triton_rows.finish(y, good, readout, g), wanted)})


def judge_rows(name: str, pairs: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> Row:
    errors = {key: relative_error(found, wanted) for key, (found, wanted) in pairs.items()}
    return {"check": f"rows, {name}", "ok": max(errors.values()) <= TOLERANCE} | errors


def check_recorded_step() -> Row:
    """A step recorded with no request at all, then replayed with others: as if run by itself."""
    heads, rows = 2, 4
    inputs = [x.cuda() for x in kernel_cases.rows(rows, heads, 64, 64, seed=5)]
    state = torch.randn(6, heads, 64, 64, device="cuda")
    wanted_state = state.clone()
    slots = torch.full((rows,), -1, dtype=torch.int32, device="cuda")
    fresh = torch.zeros(rows, dtype=torch.int8, device="cuda")
    plan = DevicePlan(rows, True, slots, fresh, slots, slots, slots, slots)
    triton_wkv7.wkv7(*inputs, state=state, plan=plan)  # compiled before it's recorded
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = triton_wkv7.wkv7(*inputs, state=state, plan=plan)
    still = torch.equal(state, wanted_state)
    slots.copy_(torch.tensor([3, 1, 5, -1]))
    fresh.copy_(torch.tensor([0, 1, 0, 0]))
    graph.replay()
    wanted = triton_wkv7.wkv7(*inputs, state=wanted_state, plan=plan)
    same = torch.equal(state, wanted_state) and torch.equal(out, wanted)
    return {"check": "a recorded step, replayed with other requests", "ok": still and same}


def check_no_waiting() -> Row:
    """Planning and running steps with torch told to refuse whatever waits for the device."""
    inputs = [x.cuda() for x in kernel_cases.rows(22, 2, 64, 64, seed=6)]
    state = torch.randn(4, 2, 64, 64, device="cuda")
    starts = torch.tensor([0, 1, 1, 21, 22], device="cuda")
    slots, fresh = torch.tensor([1, -1, 2, 3], device="cuda"), torch.zeros(4, device="cuda")
    problem = None
    torch.cuda.set_sync_debug_mode("error")
    try:
        for decodes in (True, False):
            plan = build_device_plan(starts, slots, fresh, 22, decodes=decodes)
            triton_wkv7.wkv7(*inputs, state=state, plan=plan)
    except RuntimeError as error:
        problem = str(error)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"check": "nothing waits for the device", "ok": problem is None, "problem": problem}


def measure_time() -> Iterator[Row]:
    """Microseconds of the recurrence of one layer, and its states' bytes a second."""
    big = torch.zeros(2, 2**28, device="cuda")
    micros = time_recorded(lambda: big[0].copy_(big[1]), calls=10)
    yield {"time": "a copy of 1 GiB", "us": micros, "GB/s": round(2**31 / micros / 1e3)}
    for name, heads in SHAPES.items():
        for batch in BATCHES:
            micros = time_steps(heads, [1] * batch)
            moved = 2 * batch * heads * 64 * 64 * 4
            rate = round(moved / micros / 1e3)
            yield {"time": f"decode, {name}, batch {batch}", "us": micros, "GB/s": rate}
        for rows in PROMPTS:
            yield {"time": f"prompt of {rows}, {name}", "us": time_steps(heads, [rows])}
        yield {"time": f"8 prompts of 512, {name}", "us": time_steps(heads, [512] * 8)}
    for lengths in ([1] * 32, [2048]):
        micros = time_steps(SHAPES["1.5B"], lengths, by_torch=True)
        yield {"time": f"torch operations, 1.5B, {len(lengths)} x {lengths[0]}"} | {
            "us, not recorded": micros
        }


def time_steps(heads: int, lengths: list[int], *, by_torch: bool = False) -> float:
    """Median microseconds of one step, recorded and replayed."""
    count = len(lengths)
    step = (lengths, list(range(count)), [False] * count)
    on_device, on_host = kernel_cases.on_device(step, 0, "cuda"), build_plan(*step, device="cuda")
    inputs = [x.cuda() for x in kernel_cases.rows(sum(lengths), heads, 64, 64, seed=7)]
    state = torch.zeros(count, heads, 64, 64, device="cuda")
    if by_torch:
        # Not recorded: what solves triangular systems need not allow it.
        return time_calls(lambda: torch_wkv7.wkv7(*inputs, state=state, plan=on_host))
    # A replay has a cost of its own, which a model pays once for all its layers.
    return time_recorded(lambda: triton_wkv7.wkv7(*inputs, state=state, plan=on_device), calls=10)


def time_recorded(work: Callable[[], object], repeats: int = 20, calls: int = 1) -> float:
    """Median microseconds of `work`, recorded `calls` times in a row and replayed."""
    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            work()
    return round(time_calls(graph.replay, repeats) / calls, 2)


def time_calls(work: Callable[[], object], repeats: int = 20) -> float:
    """Median microseconds between a call's first and last work on the device."""
    times = []
    work()
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end))
    return round(sorted(times)[repeats // 2], 1)

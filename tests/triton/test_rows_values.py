"""The fused row kernels against torch operations, in Triton's interpreter."""

import kernel_cases
import pytest
import torch

from rwkv_server.kernels import torch_rows, triton_rows
from rwkv_server.kernels.plan import build_plan

STEPS = {
    "decodes with a padded request": ([1, 1, 0], [3, 1, -1], [0, 1, 0]),
    "a mix": ([1, 0, 5, 1, 18], [3, -1, 2, 4, 1], [0, 0, 1, 1, 0]),
}


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("size", [64, 700])
def test_mix_reads_and_keeps_the_row_before(step: str, size: int) -> None:
    plan = build_plan(*STEPS[step])
    x, mixes = normal(plan.num_rows + 2, size, seed=1), normal(6, 1, size, seed=2)
    x[plan.num_rows :] = float("nan")
    pages = torch.full((6, 1, size + 9), float("nan"))  # room that belongs to others
    cache = pages[:, :, :size]
    for slot in plan.slots.tolist():
        cache[slot] = normal(1, size, seed=10 + slot)
    wanted_cache = cache.clone()
    wanted_cache[plan.fresh] = 0
    cache[plan.fresh] = float("nan")
    wanted = torch_rows.mix(x[: plan.num_rows], wanted_cache, mixes, plan)

    out = triton_rows.mix(x, cache, mixes, kernel_cases.on_device(STEPS[step], 2))
    torch.testing.assert_close(out[:, : plan.num_rows], wanted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(cache, wanted_cache, rtol=0, atol=0, equal_nan=True)
    assert pages[:, :, size:].isnan().all()


@pytest.mark.parametrize("head_size", [16, 20])
@pytest.mark.parametrize("is_first", [True, False])
def test_prepare_equals_torch(is_first: bool, head_size: int) -> None:
    size = 2 * head_size
    tensors = [normal(5, size, seed=seed) for seed in range(6)]
    rows = torch_rows.Projected(*tensors[:5], None if is_first else tensors[5])
    rows.k[0] = 0  # a key that can't be brought to length 1
    scales = torch_rows.KeyScales(normal(size, seed=7), normal(size, seed=8))
    wanted_first = normal(5, size, seed=9)
    v_first = wanted_first.clone()
    wanted = torch_rows.prepare(rows, wanted_first, scales, head_size)
    heads = triton_rows.prepare(rows, v_first, scales, head_size)
    torch.testing.assert_close(v_first, wanted_first, rtol=0, atol=0)
    for name, value in wanted._asdict().items():
        torch.testing.assert_close(getattr(heads, name), value, rtol=1e-6, atol=1e-6, msg=name)


@pytest.mark.parametrize("head_size", [16, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_finish_equals_torch(head_size: int, dtype: torch.dtype) -> None:
    shape, size = (5, 2, head_size), 2 * head_size
    heads = torch_rows.Heads(*(normal(*shape, seed=seed) for seed in range(6)))
    readout = torch_rows.Readout(
        normal(2, head_size, seed=7), normal(size, seed=8), normal(size, seed=9), 64e-5
    )
    y, g = normal(*shape, seed=10), normal(5, size, seed=11).to(dtype)
    wanted = torch_rows.finish(y.clone(), heads, readout, g.float())
    out = triton_rows.finish(y, heads, readout, g)
    assert out.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 0.02  # one rounding to 8 bits
    torch.testing.assert_close(out.float(), wanted, rtol=tolerance, atol=tolerance)

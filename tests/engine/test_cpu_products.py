"""The C++ kernels' matrix products: any size and type, and the same bits in any batch."""

from __future__ import annotations

import ctypes

import pytest
import torch

from rwkv_server.kernels import cpu_library, cpu_tables

TYPES = (torch.float32, torch.bfloat16, torch.float16)
# Outputs, inputs: one, none of the vectors' multiples, more than a chunk of inputs, the model's.
SIZES = [(1, 1), (7, 1), (5, 33), (67, 1030), (64, 2500), (1, 40), (768, 768), (130, 3072)]

every_library = pytest.mark.parametrize(
    "library", cpu_library.find_libraries(), ids=lambda library: library.name
)


def test_this_machine_has_a_library() -> None:
    assert cpu_library.best_library() is not None


def guarded(outputs: int, inputs: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """A random matrix with NaN before and behind it in memory."""
    memory = torch.full((outputs * inputs + 96,), float("nan"), dtype=dtype)
    weight = memory[32 : 32 + outputs * inputs].view(outputs, inputs)
    generator = torch.Generator().manual_seed(seed)
    return weight.copy_(torch.randn(outputs, inputs, generator=generator) / inputs**0.5)


@every_library
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_any_size_and_the_same_bits_in_any_batch(
    library: cpu_library.Library, size: tuple[int, int], dtype: torch.dtype
) -> None:
    weight = guarded(*size, dtype, seed=1)
    x = torch.randn(70, size[1], generator=torch.Generator().manual_seed(2)).to(dtype)
    engine, table = cpu_library.plain_engine(library), cpu_tables.matrix(weight)
    out = library.linear(engine, table, x)
    torch.testing.assert_close(out.double(), x.double() @ weight.double().T, rtol=1e-5, atol=5e-6)
    for rows in (1, 2, 3, 4, 5, 7, 13, 33, 64, 69):
        assert torch.equal(library.linear(engine, table, x[:rows]), out[:rows])
        assert torch.equal(library.linear(engine, table, x[-rows:]), out[-rows:])


@every_library
def test_the_same_bits_with_any_number_of_threads(library: cpu_library.Library) -> None:
    weight = guarded(1000, 700, torch.bfloat16, seed=3)
    x = torch.randn(37, 700, generator=torch.Generator().manual_seed(4))
    table = cpu_tables.matrix(weight)
    alone = library.linear(cpu_library.plain_engine(library), table, x)
    for threads in (2, 3, 7):
        engine = cpu_library.plain_engine(library, threads)
        for _ in range(20):
            assert torch.equal(library.linear(engine, table, x), alone)


@every_library
def test_nothing_is_written_around_the_result(library: cpu_library.Library) -> None:
    weight = guarded(37, 50, torch.bfloat16, seed=5)
    x = torch.randn(9, 50).bfloat16()
    memory = torch.full((9 * 37 + 64,), 7.0)
    table = cpu_tables.matrix(weight)
    place = memory[32:-32].data_ptr()
    engine, kind = cpu_library.plain_engine(library), cpu_tables.TYPES[x.dtype]
    library.calls.rwkv_linear(engine, ctypes.byref(table), x.data_ptr(), kind, 9, place)
    assert memory[:32].eq(7).all() and memory[-32:].eq(7).all()
    torch.testing.assert_close(memory[32:-32].view(9, 37), x.float() @ weight.float().T)


@every_library
def test_numbers_that_are_none_stay_so(library: cpu_library.Library) -> None:
    weight = guarded(5, 40, torch.bfloat16, seed=6)
    x = torch.randn(3, 40)
    x[1, 7] = float("nan")
    out = library.linear(cpu_library.plain_engine(library), cpu_tables.matrix(weight), x)
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()

"""The C++ kernels' matrix products: any size and type, and the same bits in any batch."""

from __future__ import annotations

import ctypes
import platform
import shutil
from pathlib import Path

import pytest
import torch

from rwkv_server.kernels import cpu_build, cpu_library, cpu_tables

TYPES = (torch.float32, torch.bfloat16, torch.float16)
# Outputs, inputs: one, none of the vectors' multiples, more than a chunk of inputs, the model's.
SIZES = [(1, 1), (7, 1), (5, 33), (67, 1030), (64, 2500), (1, 40), (768, 768), (130, 3072)]

every_library = pytest.mark.parametrize(
    "library", cpu_library.find_libraries(), ids=lambda library: library.name
)


def test_this_machine_has_its_libraries() -> None:
    assert cpu_library.best_library() is not None
    found = [library.name for library in cpu_library.find_libraries()]
    for target in cpu_build.TARGETS:
        if target.machine == platform.machine():
            path = cpu_build.library_path(cpu_build.LIBRARIES, target)
            library = cpu_library.open_library(path, target.name)
            assert bool(library.calls.rwkv_supported()) == (target.name in found)


@pytest.mark.parametrize("content", [b"", b"\x7fELF of another machine"])
def test_a_file_that_is_no_library_is_told_of_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    target = cpu_build.TARGETS[0]
    cpu_build.library_path(tmp_path, target).write_bytes(content)
    assert cpu_library.find_libraries(tmp_path) == ()
    (line,) = caplog.messages
    assert line.startswith(f"{cpu_build.library_path(tmp_path, target)} can't be used (")
    assert line.endswith(f"run python {cpu_build.__file__}")


def test_a_library_of_other_sources_is_told_of_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = cpu_library.find_libraries()[0].name
    (target,) = (target for target in cpu_build.TARGETS if target.name == best)
    there = cpu_build.library_path(tmp_path, target)
    shutil.copy(cpu_build.library_path(cpu_build.LIBRARIES, target), there)
    assert [library.name for library in cpu_library.find_libraries(tmp_path)] == [best]
    cpu_library.find_libraries.cache_clear()
    monkeypatch.setattr(cpu_build, "source_digest", lambda: "0" * 16)
    assert cpu_library.find_libraries(tmp_path) == ()
    (line,) = caplog.messages
    assert line.startswith(f"{there} is not made from the sources beside it")


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
@pytest.mark.parametrize("rows", [1, 3, 9])
def test_nothing_is_written_around_the_result(library: cpu_library.Library, rows: int) -> None:
    weight = guarded(37, 50, torch.bfloat16, seed=5)
    x = torch.randn(rows, 50).bfloat16()
    memory = torch.full((rows * 37 + 64,), 7.0)
    table = cpu_tables.matrix(weight)
    place = memory[32:-32].data_ptr()
    engine, kind = cpu_library.plain_engine(library), cpu_tables.TYPES[x.dtype]
    library.calls.rwkv_linear(engine, ctypes.byref(table), x.data_ptr(), kind, rows, place)
    assert memory[:32].eq(7).all() and memory[-32:].eq(7).all()
    torch.testing.assert_close(memory[32:-32].view(rows, 37), x.float() @ weight.float().T)


@every_library
def test_numbers_that_are_none_stay_so(library: cpu_library.Library) -> None:
    weight = guarded(5, 40, torch.bfloat16, seed=6)
    x = torch.randn(3, 40)
    x[1, 7] = float("nan")
    out = library.linear(cpu_library.plain_engine(library), cpu_tables.matrix(weight), x)
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()

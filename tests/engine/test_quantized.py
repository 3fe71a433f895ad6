"""Weights in 8 and 4 bits: packing, the C++ products, and what they do to answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rwkv_server.kernels import cpu_library, cpu_quantize, cpu_tables
from rwkv_server.kernels.cpu_library import Library
from rwkv_server.model import packed_manifest
from tiny_recall import evaluate, probes

SCHEMES = packed_manifest.ON_LOAD
SHAPES = ((64, 64), (65, 192), (7, 128), (66, 1088), (5, 3072))
LIBRARIES = cpu_library.find_libraries()

pytestmark = pytest.mark.engine


def random_matrix(outputs: int, inputs: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(outputs * inputs)
    return torch.randn(outputs, inputs, generator=generator) / inputs**0.5


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(("scheme", "bound"), [("Int8", 0.01), ("Int4", 0.11)])
def test_packed_weights_stand_for_nearly_the_same(scheme: str, bound: float) -> None:
    weight = random_matrix(48, 512)
    packed = cpu_quantize.pack(weight, scheme)
    assert packed.scheme == scheme
    assert relative(cpu_quantize.unpack(packed), weight) < bound
    bits = 8 * (packed.values.nbytes + packed.scales.nbytes) / weight.numel()
    assert bits < {"Int8": 8.1, "Int4": 4.6}[scheme]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_zeros_stay_zeros_and_groups_that_do_not_fit_get_eight_bits(scheme: str) -> None:
    assert not cpu_quantize.unpack(cpu_quantize.pack(torch.zeros(3, 128), scheme)).any()
    assert cpu_quantize.pack(random_matrix(4, 96), scheme).scheme == "Int8"


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_are_those_of_the_unpacked_weights_in_any_batch(
    library: Library, scheme: str, shape: tuple[int, int]
) -> None:
    packed = cpu_quantize.pack(random_matrix(*shape), scheme)
    engine = cpu_library.plain_engine(library)
    table = cpu_tables.packed_matrix(packed, packed.values)
    x = random_matrix(33, shape[1])
    together = library.linear(engine, table, x)
    alone = [library.linear(engine, table, x[i : i + 1]) for i in range(len(x))]
    assert torch.equal(together, torch.cat(alone))
    # What is left is the rounding of inputs: to 8 bits, or to bf16.
    assert relative(together, x @ cpu_quantize.unpack(packed).T) < 0.01


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_no_number_comes_out_as_none(library: Library, scheme: str) -> None:
    packed = cpu_quantize.pack(random_matrix(64, 256), scheme)
    x = random_matrix(3, 256)
    x[1, 200] = float("nan")
    table = cpu_tables.packed_matrix(packed, packed.values)
    found = library.linear(cpu_library.plain_engine(library), table, x).isnan()
    assert found[1].all() and not found[0].any() and not found[2].any()


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_not_hidden(
    library: Library, scheme: str, bad: float
) -> None:
    weight = random_matrix(9, 256)
    weight[4, 100] = bad
    packed = cpu_quantize.pack(weight, scheme)
    table = cpu_tables.packed_matrix(packed, packed.values)
    x = random_matrix(3, 256)
    found = library.linear(cpu_library.plain_engine(library), table, x).isfinite()
    assert not found[:, 4].any()
    assert found[:, :4].all() and found[:, 5:].all()


@pytest.fixture(params=SCHEMES)
def quantized(request: pytest.FixtureRequest, tiny_model: Path, kept: dict[str, Any]) -> Any:
    """An engine that packs the bundled model while it loads it."""
    import recall_chats

    scheme = request.param
    if scheme not in kept:
        kept[scheme] = recall_chats.start(tiny_model, {packed_manifest.ON_LOAD_KEY: scheme})
    return kept[scheme]


def test_packed_matrices_exist_once(quantized: Any) -> None:
    model = quantized.llm_engine.model_executor.driver_worker.model_runner.model
    for block in model.model.blocks:
        for linear in (block.attn.r_proj, block.attn.o_proj, block.ffn.key, block.ffn.value):
            assert linear.weight.untyped_storage().nbytes() == 0


def test_the_bundled_model_still_recalls(quantized: Any) -> None:
    import recall_chats

    asked = probes.build_probes(2026, 100)
    replies = recall_chats.ask(quantized, [probe.messages for probe in asked])
    assert evaluate.share(asked, replies) >= 0.9

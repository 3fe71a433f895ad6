"""Tensor names, counts and parameter totals against the published checkpoints."""

from math import prod

import pytest

from rwkv_server.model import weights
from rwkv_server.model.config import RWKV7Config


def sized(layers: int, hidden: int, ranks: tuple[int, int, int, int]) -> RWKV7Config:
    return RWKV7Config(65536, hidden, layers, 64, 4 * hidden, *ranks, 1e-5, False)


SMALL = sized(12, 768, (64, 64, 32, 128))


@pytest.mark.parametrize(
    ("config", "count", "parameters"),
    [
        (SMALL, 399, 191_034_624),
        (sized(24, 1024, (64, 64, 32, 128)), 795, 450_767_872),
        (sized(24, 2048, (96, 96, 64, 256)), 795, 1_527_404_544),
        (sized(32, 2560, (96, 96, 64, 320)), 1059, 2_947_735_040),
        (sized(32, 4096, (128, 128, 96, 480)), 1059, 7_199_141_888),
    ],
    ids=["0.1B", "0.4B", "1.5B", "2.9B", "7.2B"],
)
def test_published_sizes_have_their_tensors_and_parameters(
    config: RWKV7Config, count: int, parameters: int
) -> None:
    expected = weights.expected_tensors(config)
    assert len(expected) == count
    assert sum(prod(shape) for shape in expected.values()) == parameters


def test_the_value_residual_starts_with_the_second_layer() -> None:
    names = weights.expected_tensors(SMALL)
    assert "model.layers.0.pre_norm.weight" in names
    assert "model.layers.0.attn.v_lora.lora.0.weight" not in names
    assert "model.layers.1.attn.v_lora.lora.0.weight" in names


def test_every_difference_names_tensor_found_and_wanted() -> None:
    found = weights.expected_tensors(SMALL)
    del found["lm_head.weight"]
    found["model.norm.weight"] = (512,)
    found["model.layers.0.attn.x_r"] = (768,)
    found["surprise"] = (1,)
    assert [str(d) for d in weights.find_differences(SMALL, found)] == [
        "model.norm.weight has shape [512], wanted [768]",
        "lm_head.weight is missing, wanted shape [65536, 768]",
        "surprise is not part of an RWKV-7 of this config",
    ]

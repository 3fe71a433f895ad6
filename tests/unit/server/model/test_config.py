"""config.json in, a frozen value or an error that names the field out."""

from typing import Any

import pytest

from rwkv_server import errors
from rwkv_server.model import config

TINY: dict[str, Any] = {
    "model_type": "rwkv7",
    "vocab_size": 320,
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "head_dim": 64,
    "decay_low_rank_dim": 32,
    "a_low_rank_dim": 32,
    "v_low_rank_dim": 16,
    "gate_low_rank_dim": 64,
    "intermediate_size": 512,
}


def test_derived_numbers_follow_the_format() -> None:
    parsed = config.parse_config(TINY)
    assert (parsed.num_heads, parsed.group_norm_eps) == (2, 64e-5)
    assert not parsed.tie_word_embeddings


@pytest.mark.parametrize(
    ("changes", "wide"),
    [({"intermediate_size": 512}, 512), ({"hidden_ratio": 4.0}, 512), ({"hidden_ratio": 3.1}, 416)],
)
def test_the_feed_forward_width_is_derived_where_it_is_left_out(
    changes: dict[str, Any], wide: int
) -> None:
    raw = {k: v for k, v in TINY.items() if k != "intermediate_size"} | changes
    assert config.parse_config(raw).intermediate_size == wide


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_type", "mamba"),
        ("hidden_size", "128"),
        ("hidden_size", 100),
        ("num_hidden_layers", 0),
        ("vocab_size", True),
        ("decay_low_rank_dim", None),
        ("num_heads", 4),
        ("hidden_act", "relu"),
        ("norm_first", False),
        ("norm_bias", False),
        ("attn", {"layers": [1]}),
        ("value_dim", [128, 256, 128]),
        ("norm_eps", None),
        ("norm_eps", "x"),
        ("norm_eps", True),
        ("norm_eps", 0),
        ("norm_eps", float("nan")),
        ("norm_eps", float("inf")),
        pytest.param("norm_eps", 10**400, id="norm_eps-huge"),
        ("tie_word_embeddings", "false"),
    ],
)
def test_an_unusable_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(errors.ModelInvalid, match=rf"config.json: {field} is ") as caught:
        config.parse_config(TINY | {field: value})
    assert caught.value.wanted


@pytest.mark.parametrize("value", ["x", [4], 0, -1.0, float("nan"), float("inf")])
def test_an_unusable_ratio_is_named(value: Any) -> None:
    raw = {k: v for k, v in TINY.items() if k != "intermediate_size"} | {"hidden_ratio": value}
    with pytest.raises(errors.ModelInvalid, match=r"config.json: hidden_ratio is "):
        config.parse_config(raw)


def test_a_ratio_of_null_is_none() -> None:
    raw = {k: v for k, v in TINY.items() if k != "intermediate_size"} | {"hidden_ratio": None}
    assert config.parse_config(raw).intermediate_size == 512


@pytest.mark.parametrize(
    ("raw", "wrong"),
    [
        ({"vocab_size": 65536, "eos_token_id": 2}, True),
        ({"vocab_size": 65536, "eos_token_id": 0}, False),
        ({"vocab_size": 65536}, False),
        ({"vocab_size": 50304, "eos_token_id": 2}, False),
    ],
)
def test_the_formats_default_end_is_wrong_for_world_models(raw, wrong):
    assert config.has_wrong_end(raw) is wrong

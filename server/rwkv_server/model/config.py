"""What an RWKV-7 checkpoint's config.json says, as one frozen value.

The field names are those of the fla format, the one that Hugging Face repositories of RWKV-7 use.
Pure: no torch, no transformers, no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rwkv_server import errors

MODEL_TYPE = "rwkv7"
ARCHITECTURE = "RWKV7ForCausalLM"


@dataclass(frozen=True)
class RWKV7Config:
    """The numbers that decide every tensor's shape.

    The four ranks are those of the low-rank projections for decay (w), learning rate (a), value
    residual (v) and gate (g).
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    head_dim: int
    intermediate_size: int
    decay_low_rank_dim: int
    a_low_rank_dim: int
    v_low_rank_dim: int
    gate_low_rank_dim: int
    norm_eps: float
    tie_word_embeddings: bool

    @property
    def num_heads(self) -> int:
        """Heads of the recurrent state."""
        return self.hidden_size // self.head_dim

    @property
    def group_norm_eps(self) -> float:
        """Epsilon of the per-head norm after the recurrence; the format scales it by head size."""
        return self.head_dim * self.norm_eps


_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "decay_low_rank_dim",
    "a_low_rank_dim",
    "v_low_rank_dim",
    "gate_low_rank_dim",
)
_MAX_NUMBER = 1e6
_WORLD_ROWS = 65536
_DEFAULT_END = 2
# What other variants of the format may say, and we don't implement.
_FIXED = {"hidden_act": "sqrelu", "norm_first": True, "norm_bias": True}


def _invalid(field: str, found: Any, wanted: str) -> errors.ModelInvalid:
    text = "nothing" if found is None else repr(found)
    message = f"config.json: {field} is {text}, this server needs {wanted}"
    return errors.ModelInvalid(message, found=text, wanted=wanted)


def _positive(raw: Mapping[str, Any], field: str) -> int:
    value = raw.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _invalid(field, value, "a positive integer")
    return value


def _number(raw: Mapping[str, Any], field: str, default: float) -> float:
    value = raw.get(field, default)
    # NaN compares with nothing; the bound keeps infinity and what no float can hold away.
    if type(value) not in (int, float) or not 0 < value < _MAX_NUMBER:
        raise _invalid(field, value, "a positive number")
    return float(value)


def _flag(raw: Mapping[str, Any], field: str) -> bool:
    value = raw.get(field)
    if value is not None and not isinstance(value, bool):
        raise _invalid(field, value, "true or false")
    return bool(value)


def has_wrong_end(raw: Mapping[str, Any]) -> bool:
    """Whether config.json names the format's default end on a World model, whose end is 0."""
    return raw.get("vocab_size") == _WORLD_ROWS and raw.get("eos_token_id") == _DEFAULT_END


def parse_config(raw: Mapping[str, Any]) -> RWKV7Config:
    """Read config.json's content.

    Raises:
        ModelInvalid: naming the field, what it holds and what would do.
    """
    if raw.get("model_type") != MODEL_TYPE:
        raise _invalid("model_type", raw.get("model_type"), repr(MODEL_TYPE))
    sizes = {field: _positive(raw, field) for field in _SIZES}
    hidden = sizes["hidden_size"]
    head_dim = _positive({"head_dim": 64, **raw}, "head_dim")
    if hidden % head_dim:
        raise _invalid("hidden_size", hidden, f"a multiple of head_dim {head_dim}")
    if raw.get("num_heads") not in (None, hidden // head_dim):
        raise _invalid("num_heads", raw["num_heads"], f"{hidden // head_dim} or nothing")
    for field, wanted in _FIXED.items():
        if raw.get(field, wanted) != wanted:
            raise _invalid(field, raw[field], repr(wanted))
    if raw.get("attn") is not None:
        raise _invalid("attn", raw["attn"], "null: hybrids with attention are not supported")
    widths = raw.get("value_dim")
    for width in widths if isinstance(widths, list) else [widths]:
        if width not in (None, hidden):
            raise _invalid("value_dim", widths, f"{hidden} in every layer")
    return RWKV7Config(
        head_dim=head_dim,
        intermediate_size=_intermediate_size(raw, hidden),
        norm_eps=_number(raw, "norm_eps", 1e-5),
        tie_word_embeddings=_flag(raw, "tie_word_embeddings"),
        **sizes,
    )


def _intermediate_size(raw: Mapping[str, Any], hidden: int) -> int:
    """The feed-forward width; left out, the format derives it, rounded up to a multiple of 32."""
    if raw.get("intermediate_size") is not None:
        return _positive(raw, "intermediate_size")
    given = {name: value for name, value in raw.items() if value is not None}
    width = int(hidden * _number(given, "hidden_ratio", 4.0))
    return -(-width // 32) * 32

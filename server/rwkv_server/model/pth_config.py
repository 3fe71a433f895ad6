"""The config.json of an official checkpoint, which has none: its tensors' shapes say it all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rwkv_server.errors import ModelInvalid
from rwkv_server.model import config

Shape = tuple[int, ...]

_LAYER = re.compile(r"blocks\.(\d+)\.")
# Tensors that only other generations of the architecture have.
_OLDER = (("att.time_maa", "RWKV-6"), ("att.time_mix", "RWKV-4 or RWKV-5"))


def infer_config(shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """What config.json has to say for official tensors of these shapes.

    Raises:
        ModelInvalid: they aren't an RWKV-7's; names the tensor that is missing or odd.
    """
    _check_generation(shapes)
    vocab_size, hidden_size = _matrix(shapes, "emb.weight")
    layers = 1 + max(int(found[1]) for name in shapes if (found := _LAYER.match(name)))
    second = f"blocks.{min(1, layers - 1)}"
    heads, head_dim = _matrix(shapes, "blocks.0.att.r_k")
    return {
        "architectures": [config.ARCHITECTURE],
        "model_type": config.MODEL_TYPE,
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_heads": heads,
        "head_dim": head_dim,
        "intermediate_size": _matrix(shapes, "blocks.0.ffn.key.weight")[0],
        "decay_low_rank_dim": _matrix(shapes, "blocks.0.att.w1")[1],
        "a_low_rank_dim": _matrix(shapes, "blocks.0.att.a1")[1],
        "v_low_rank_dim": _matrix(shapes, f"{second}.att.v1")[1] if layers > 1 else 1,
        "gate_low_rank_dim": _matrix(shapes, "blocks.0.att.g1")[1],
        "hidden_act": "sqrelu",
        "norm_first": True,
        "norm_bias": True,
        "norm_eps": 1e-5,
        "tie_word_embeddings": False,
        # The end of a document; the format's own default is another number and wrong.
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def _check_generation(shapes: Mapping[str, Shape]) -> None:
    if "blocks.0.att.r_k" in shapes:
        return
    for part, generation in _OLDER:
        if any(part in name for name in shapes):
            raise ModelInvalid(
                f"the checkpoint is an {generation}, this server runs RWKV-7",
                found=generation,
                wanted="RWKV-7",
            )
    raise ModelInvalid(
        "the checkpoint holds no tensor blocks.0.att.r_k: it is not an RWKV-7 in official names",
        found=", ".join(sorted(shapes)[:3]) or "no tensors",
        wanted="RWKV-7",
    )


def _matrix(shapes: Mapping[str, Shape], name: str) -> tuple[int, int]:
    shape = shapes.get(name)
    if shape is None:
        raise ModelInvalid(f"the checkpoint lacks the tensor {name}", wanted=name)
    if len(shape) != 2:
        raise ModelInvalid(
            f"tensor {name} has shape {list(shape)}, wanted two dimensions",
            found=list(shape),
            wanted="two dimensions",
        )
    return shape[0], shape[1]

from __future__ import annotations

import model_files
import pth_file
import pytest

from rwkv_server.errors import ModelInvalid
from rwkv_server.model import config, pth_config, pth_names, weights


@pytest.mark.parametrize(
    ("official", "shape", "name", "converted"),
    [
        ("emb.weight", (12, 64), "model.embeddings.weight", (12, 64)),
        ("head.weight", (12, 64), "lm_head.weight", (12, 64)),
        ("ln_out.bias", (64,), "model.norm.bias", (64,)),
        ("blocks.0.ln0.weight", (64,), "model.layers.0.pre_norm.weight", (64,)),
        ("blocks.10.ln2.bias", (64,), "model.layers.10.ffn_norm.bias", (64,)),
        ("blocks.1.att.w0", (1, 1, 64), "model.layers.1.attn.w_lora.lora.2.bias", (64,)),
        ("blocks.1.att.w1", (64, 4), "model.layers.1.attn.w_lora.lora.0.weight", (4, 64)),
        ("blocks.1.att.g2", (4, 64), "model.layers.1.attn.g_lora.lora.2.weight", (64, 4)),
        ("blocks.1.att.x_r", (1, 1, 64), "model.layers.1.attn.x_r", (1, 1, 64)),
        ("blocks.1.att.x_g", (64,), "model.layers.1.attn.x_g", (1, 1, 64)),
        ("blocks.1.att.k_k", (1, 1, 64), "model.layers.1.attn.k_k", (64,)),
        ("blocks.1.att.r_k", (1, 64), "model.layers.1.attn.r_k", (1, 64)),
        ("blocks.1.att.ln_x.weight", (64,), "model.layers.1.attn.g_norm.weight", (64,)),
        ("blocks.1.att.output.weight", (64, 64), "model.layers.1.attn.o_proj.weight", (64, 64)),
        ("blocks.1.ffn.x_k", (1, 1, 64), "model.layers.1.ffn.x_k", (64,)),
        ("blocks.1.ffn.value.weight", (64, 99), "model.layers.1.ffn.value.weight", (64, 99)),
    ],
)
def test_names_and_shapes(official, shape, name, converted):
    target = pth_names.parse_name(official)
    assert target is not None
    assert (target.name, target.shape(shape)) == (name, converted)


@pytest.mark.parametrize(
    "name",
    ["", "emb", "blocks.x.ln1.weight", "blocks.1.att.g0", "blocks.1.att.time_maa_x",
     "blocks.1.ffn.key.scale", "model.norm.weight", "blocks.1.att.w3"],
)  # fmt: skip
def test_names_of_other_models(name):
    assert pth_names.parse_name(name) is None


def test_every_tensor_of_the_format_has_an_official_name():
    names = {pth_names.parse_name(name) for name in pth_file.official_tensors()
             if not pth_names.is_unused(name)}  # fmt: skip
    wanted = weights.expected_tensors(model_files.config())
    assert {target.name for target in names if target} == set(wanted)


def shapes():
    return {name: tensor.shape for name, tensor in pth_file.official_tensors().items()}


def test_the_config_follows_from_the_shapes():
    assert config.parse_config(pth_config.infer_config(shapes())) == model_files.config()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("emb.weight"), "lacks the tensor emb.weight"),
        (lambda s: s.update({"emb.weight": (3,)}), r"emb.weight has shape \[3\]"),
        (lambda s: s.pop("blocks.0.att.r_k"), "no tensor blocks.0.att.r_k"),
        (
            lambda s: (s.pop("blocks.0.att.r_k"), s.update({"blocks.0.att.time_maa_x": (1,)})),
            "is an RWKV-6, this server runs RWKV-7",
        ),
        (lambda s: s.clear(), "no tensor blocks.0.att.r_k"),
    ],
)
def test_what_is_no_rwkv7(change, words):
    changed = shapes()
    change(changed)
    with pytest.raises(ModelInvalid, match=words):
        pth_config.infer_config(changed)

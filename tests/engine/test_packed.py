"""Packed feed-forward weights against the dense ones, on real bytes."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file

from rwkv_server.errors import ModelInvalid
from rwkv_server.model import packed, packed_manifest
from rwkv_server.model.config import RWKV7Config, parse_config

if TYPE_CHECKING:
    from inproc_engine import Engine

DIGEST = "sha256:" + "1" * 64
# Both matrices of one layer of the 1.5B shape.
KEY, VALUE = (8192, 2048), (2048, 8192)


def random_weight(shape: tuple[int, int]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)) / shape[1] ** 0.5


@pytest.mark.parametrize(("scheme", "percent"), [("W8", 50.0), ("W4", 26.6)])
def test_the_payload_is_that_part_of_fp16(scheme: str, percent: float) -> None:
    stored = dense = 0
    for shape in (KEY, VALUE):
        parts = packed.pack(torch.ones(shape), scheme)
        stored += sum(tensor.nbytes for tensor in parts.values())
        dense += torch.empty(shape, dtype=torch.float16).nbytes
    assert round(100 * stored / dense, 1) == percent


@pytest.mark.parametrize(("scheme", "limit"), [("W8", 0.02), ("W4", 0.15)])
def test_products_are_close_to_the_dense_ones(scheme: str, limit: float) -> None:
    weight = random_weight((512, 256))
    x = torch.randn(8, 256, generator=torch.Generator().manual_seed(4))
    dense, near = x @ weight.T, x @ packed.unpack(packed.pack(weight, scheme), scheme).T
    error = float((near - dense).norm() / dense.norm())
    assert 1e-4 < error < limit


@pytest.mark.parametrize("scheme", ["W8", "W4"])
def test_constant_and_empty_rows_survive(scheme: str) -> None:
    weight = torch.zeros(3, 256)
    weight[1] = 0.5
    near = packed.unpack(packed.pack(weight, scheme), scheme)
    torch.testing.assert_close(near, weight, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("scheme", "rows"), [("W8", (17, 28)), ("W4", (1, 8))])
def test_only_the_manifests_row_counts_take_the_packed_weights(
    scheme: str, rows: tuple[int, ...]
) -> None:
    weight = random_weight((64, 128))
    dense = torch.nn.Linear(128, 64, bias=False)
    dense.weight.data.copy_(weight)
    layer = packed.PackedLinear(dense, packed.pack(weight, scheme), scheme, rows)
    near = packed.unpack(packed.pack(weight, scheme), scheme)
    for count in range(1, 33):
        x = torch.randn(count, 128)
        wanted = near if count in rows else weight
        torch.testing.assert_close(layer(x), x @ wanted.T)


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny_model / name, tmp_path)
    return tmp_path


def config_of(folder: Path) -> RWKV7Config:
    return parse_config(json.loads((folder / "config.json").read_text()))


@pytest.mark.parametrize("scheme", ["W8", "W4"])
def test_a_model_is_packed_and_loaded_again(folder: Path, scheme: str) -> None:
    config = config_of(folder)
    packed.write(folder, scheme, DIGEST, config)
    manifest, weights = packed.load(folder, scheme, DIGEST, config)
    assert set(weights) == set(manifest.shapes) == set(packed_manifest.ffn_shapes(config))
    dense = load_file(folder / "model.safetensors")
    for name, parts in weights.items():
        near = packed.unpack(parts, scheme)
        assert float((near - dense[name].float()).abs().max() / dense[name].abs().max()) < 0.1


def test_a_payload_of_other_shapes_is_refused_even_with_the_right_hash(folder: Path) -> None:
    config = config_of(folder)
    path = packed.write(folder, "W8", DIGEST, config)
    payload = folder / "packed-w8.payload"
    tensors = load_file(payload)
    name = "model.layers.0.ffn.key.weight.scale"
    save_file(tensors | {name: tensors[name][:-1].clone()}, payload)
    manifest = json.loads(path.read_text())
    with pytest.raises(ModelInvalid, match="SHA-256"):
        packed.load(folder, "W8", DIGEST, config)
    manifest["payload"]["sha256"] = hashlib.sha256(payload.read_bytes()).hexdigest()
    path.write_text(json.dumps(manifest))
    with pytest.raises(ModelInvalid, match="has parts"):
        packed.load(folder, "W8", DIGEST, config)


def test_every_block_gets_its_own_weights(folder: Path) -> None:
    config = config_of(folder)
    packed.write(folder, "W4", DIGEST, config)
    dense = load_file(folder / "model.safetensors")
    blocks = torch.nn.ModuleList()
    for index in range(config.num_hidden_layers):
        block = torch.nn.Module()
        block.ffn = torch.nn.Module()
        for half in ("key", "value"):
            weight = dense[f"model.layers.{index}.ffn.{half}.weight"].float()
            linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
            linear.requires_grad_(False)
            linear.weight.copy_(weight)
            setattr(block.ffn, half, linear)
        blocks.append(block)
    packed.attach(blocks, folder, {"scheme": "W4", "model": DIGEST}, config)
    for block in blocks:
        for half in ("key", "value"):
            layer = getattr(block.ffn, half)
            x = torch.randn(8, layer.dense.weight.shape[1])
            near, exact = layer(x), layer.dense(x)
            assert 1e-4 < float((near - exact).norm() / exact.norm()) < 0.2
    with pytest.raises(ModelInvalid, match="model is"):
        packed.attach(blocks, folder, {"scheme": "W4", "model": "sha256:other"}, config)


def test_an_engine_takes_them_where_it_is_asked_to(folder: Path, tiny_torch: Engine) -> None:
    import inproc_engine

    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(Path(tiny_torch.llm.model_config.model) / name, folder)
    packed.write(folder, "W8", DIGEST, config_of(folder))
    asked = {packed_manifest.KEY: {"scheme": "W8", "model": DIGEST}}
    engine = inproc_engine.Engine(folder, additional_config=asked)
    prompts = [[1 + index % 255 for index in range(length)] for length in (17, 16)]
    for prompt, changes in zip(prompts, (True, False), strict=True):
        dense, near = tiny_torch.generate([prompt], 1)[0], engine.generate([prompt], 1)[0]
        distance = float((dense.logits - near.logits).abs().max())
        assert (1e-5 < distance < 1.0) if changes else distance == 0.0

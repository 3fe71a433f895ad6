"""Writes a complete RWKV-7 model directory of any shape with seeded random weights.

The weights are scaled so that decays, learning rates and gates spread over their ranges and logits
are not flat: greedy tokens of two right implementations then agree for long.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from rwkv_server.model import weights
from rwkv_server.model.config import ARCHITECTURE, MODEL_TYPE, RWKV7Config

TINY = RWKV7Config(320, 128, 3, 64, 512, 32, 32, 16, 64, 1e-5, False)
# The World vocabulary on as little model as there can be, its head the embedding.
WORLD = RWKV7Config(65536, 128, 2, 64, 256, 16, 16, 16, 32, 1e-5, True)
SMALL = RWKV7Config(65536, 768, 12, 64, 3072, 64, 64, 32, 128, 1e-5, False)  # "0.1B"

# name ending → (mean, spread); everything else is a matrix scaled by its inputs
VECTORS = {
    "norm.weight": (1.0, 0.1),
    "norm.bias": (0.0, 0.1),
    "w_lora.lora.2.bias": (-1.0, 2.0),
    "a_lora.lora.2.bias": (0.0, 1.5),
    "v_lora.lora.2.bias": (0.5, 1.0),
    "k_k": (0.85, 0.1),
    "k_a": (1.0, 0.1),
    "r_k": (0.0, 0.3),
}
MATRICES = {"embeddings.weight": 1.0, "lm_head.weight": 0.12}
# A tied head finds the last token again, unless what the layers add outweighs it.
TIED = {"pre_norm.weight": (0.1, 0.02)}


def random_tensors(config: RWKV7Config, seed: int) -> dict[str, torch.Tensor]:
    """Every tensor of the checkpoint, fp32, by its fla name."""
    generator = torch.Generator().manual_seed(seed)
    vectors = TIED | VECTORS if config.tie_word_embeddings else VECTORS
    tensors = {}
    for name, shape in weights.expected_tensors(config).items():
        noise = torch.randn(shape, generator=generator)
        if name.rpartition(".")[2].startswith("x_"):
            tensors[name] = torch.rand(shape, generator=generator)
            continue
        vector = next((v for end, v in vectors.items() if name.endswith(end)), None)
        if vector is not None:
            tensors[name] = vector[0] + vector[1] * noise
            continue
        scale = next((s for end, s in MATRICES.items() if name.endswith(end)), None)
        tensors[name] = noise * (1 / math.sqrt(shape[-1]) if scale is None else scale)
    if config.tie_word_embeddings:
        # The embedding's rows are long for a head's.
        for kind in ("weight", "bias"):
            tensors[f"model.norm.{kind}"] *= MATRICES["lm_head.weight"]
    return tensors


def byte_tokenizer() -> dict[str, object]:
    """A fast tokenizer's JSON: byte b is token b + 1, token 0 ends a document."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    letters = [chr(b if b in printable else next(others)) for b in range(256)]
    end = {"id": 0, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False}
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": [end | {"normalized": False, "special": True}],
        "pre_tokenizer": plain | {"use_regex": False},
        "decoder": plain | {"use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {"<|end|>": 0} | {letter: b + 1 for b, letter in enumerate(letters)},
            "merges": [],
        },
    }


def write_checkpoint(path: Path, config: RWKV7Config, seed: int) -> Path:
    """Write the whole model directory and return it."""
    write_side_files(path, config)
    save_file(random_tensors(config, seed), path / "model.safetensors")
    return path


def write_side_files(path: Path, config: RWKV7Config) -> None:
    """Write all of a model directory but its weights."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
    files = {
        "config.json": {
            "architectures": [ARCHITECTURE],
            "model_type": MODEL_TYPE,
            "eos_token_id": 0,
            "torch_dtype": "float32",
            **dataclasses.asdict(config),
        },
        "generation_config.json": {"eos_token_id": 0},
        "tokenizer.json": byte_tokenizer(),
        "tokenizer_config.json": tokenizer,
    }
    for name, content in files.items():
        (path / name).write_text(json.dumps(content, indent=1))


def write_world_checkpoint(path: Path, seed: int) -> Path:
    """A World model as fla's repositories hold one, but for their Python code: no tokenizer.json.

    Its config names the end that fla's template names.
    """
    write_checkpoint(path, WORLD, seed)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (path / name).unlink()
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    for name in ("config.json", "generation_config.json"):
        content = json.loads((path / name).read_text())
        (path / name).write_text(json.dumps(content | ends, indent=1))
    return path


if __name__ == "__main__":
    directory, shape = sys.argv[1:]
    write_checkpoint(Path(directory), {"tiny": TINY, "0.1b": SMALL}[shape], seed=1)

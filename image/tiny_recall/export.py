"""Writes a trained network as safetensors in fla's names, beside the model folder's small files."""

import pathlib

import torch
from safetensors import torch as safetensors_torch

from tiny_recall import files, model


def export(network: model.TinyRwkv, folder: pathlib.Path) -> None:
    """Write the whole model folder, the model card aside."""
    files.write_files(folder)
    weights = {
        name: tensor.detach().to(torch.float32).contiguous()
        for name, tensor in network.state_dict().items()
    }
    target = folder / "model.safetensors"
    safetensors_torch.save_file(weights, target, metadata={"format": "pt"})
    target.chmod(0o644)  # the server's user reads it in the image

"""Starting values of the weights, close to those that RWKV-7 is usually trained from."""

import torch
from torch import nn

from tiny_recall import model

_MIX_POWERS = {"r": 0.2, "w": 0.9, "k": 0.7, "v": 0.7, "a": 0.9, "g": 0.2}


@torch.no_grad()
def init_weights(network: model.TinyRwkv) -> None:
    """Set every weight; torch's global generator supplies the randomness."""
    shape = network.shape
    nn.init.normal_(network.model.embeddings.weight, std=0.02)
    nn.init.orthogonal_(network.lm_head.weight, gain=0.5)
    for index, layer in enumerate(network.model.layers):
        assert isinstance(layer, model.Layer)
        _init_attention(layer.attn, shape, index)
        _init_feed_forward(layer.ffn, shape, index)


def _init_attention(attention: model.Attention, shape: model.Shape, index: int) -> None:
    width, last = shape.width, max(1, shape.layers - 1)
    position = torch.arange(width) / width
    linear = torch.arange(width) / (width - 1) - 0.5
    centered = (torch.arange(width) % shape.head - (shape.head - 1) / 2) / ((shape.head - 1) / 2)
    zigzag = centered * centered.abs()
    for name, power in _MIX_POWERS.items():
        exponent = power * (1 - index / shape.layers)
        getattr(attention, f"x_{name}").copy_((1 - position**exponent).view(1, 1, width))
    decay = -6 + 6 * (torch.arange(width) / (width - 1)) ** (1 + (index / last) ** 0.3)
    _init_lora(attention.w_lora, decay + 0.5 + 2.5 * zigzag)
    _init_lora(attention.a_lora, -0.19 + 0.3 * zigzag + 0.4 * linear)
    if index > 0:
        _init_lora(attention.v_lora, 0.73 - 0.4 * linear)
    nn.init.normal_(attention.g_lora.lora[0].weight, std=0.02)
    nn.init.orthogonal_(attention.g_lora.lora[2].weight, gain=0.1)
    attention.k_k.copy_(0.71 - 0.1 * linear)
    attention.k_a.fill_(1.02)
    attention.r_k.fill_(-0.04)
    nn.init.orthogonal_(attention.r_proj.weight)
    nn.init.orthogonal_(attention.k_proj.weight, gain=0.1)
    nn.init.orthogonal_(attention.v_proj.weight)
    nn.init.zeros_(attention.o_proj.weight)
    attention.g_norm.weight.fill_(((index + 1) / shape.layers) ** 0.7)


def _init_lora(lora: model.Lora, bias: torch.Tensor) -> None:
    nn.init.zeros_(lora.lora[0].weight)
    nn.init.orthogonal_(lora.lora[2].weight, gain=0.1)
    lora.lora[2].bias.copy_(bias)


def _init_feed_forward(ffn: model.FeedForward, shape: model.Shape, index: int) -> None:
    position = torch.arange(shape.width) / shape.width
    ffn.x_k.copy_(1 - position ** ((1 - index / shape.layers) ** 4))
    nn.init.orthogonal_(ffn.key.weight)
    nn.init.zeros_(ffn.value.weight)
